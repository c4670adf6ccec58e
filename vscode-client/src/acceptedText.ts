// Follows the text that the user accepted last through later edits. VS Code tells of no acceptance of a word or a line.

/** Offsets in a document's text. */
export interface Span {
  start: number;
  end: number;
}

/** What of VS Code's change is read. */
interface Change {
  rangeOffset: number;
  rangeLength: number;
  text: string;
}

export class AcceptedText {
  private suggested: { uri: string; start: number; text: string } | undefined;
  private last: { uri: string; span: Span } | undefined;

  /** The accepted text in this document; undefined if the last one was accepted in another, or is gone. */
  in(uri: string): Span | undefined {
    return this.last?.uri === uri && this.last.span.start < this.last.span.end ? this.last.span : undefined;
  }

  /** What is suggested now: a text that begins at this offset, or nothing. */
  isSuggested(uri: string, start: number, text: string | undefined): void {
    this.suggested = text === undefined ? undefined : { uri, start, text };
  }

  /** This text was accepted; what touches the text accepted before is one with it. */
  accept(uri: string, { start, end }: Span): void {
    const before = this.in(uri);
    const touches = before !== undefined && start <= before.end && end >= before.start;
    const span = touches ? { start: Math.min(start, before.start), end: Math.max(end, before.end) } : { start, end };
    this.last = { uri, span };
  }

  /** Follow changes of a document, of which `textOf` gives the present text: whether one accepted a part of what is suggested. */
  changed(uri: string, changes: readonly Change[], textOf: (span: Span) => string): boolean {
    const { last, suggested } = this;
    if (last?.uri === uri) {
      last.span = changes.reduce(moved, last.span);
    }
    const [change] = changes;
    if (changes.length !== 1 || change === undefined || change.text.length < 2 || suggested?.uri !== uri) {
      return false; // a key inserts one character
    }
    const part = { start: change.rangeOffset, end: change.rangeOffset + change.text.length };
    const accepted = withLf(textOf({ start: suggested.start, end: part.end }));
    const isPart = part.start >= suggested.start && withLf(suggested.text).startsWith(accepted);
    if (isPart) {
      this.accept(uri, part);
    }
    return isPart;
  }
}

/** A document's line ends need not be the suggestion's. */
function withLf(text: string): string {
  return text.replaceAll("\r\n", "\n");
}

/** Where a text is after a change; one that overlaps it goes with it. */
function moved({ start, end }: Span, { rangeOffset, rangeLength, text }: Change): Span {
  const [last, by] = [rangeOffset + rangeLength, text.length - rangeLength];
  if (rangeOffset >= end) {
    return { start, end };
  }
  if (last <= start) {
    return { start: start + by, end: end + by };
  }
  return { start: Math.min(start, rangeOffset), end: Math.max(end, last) + by };
}
