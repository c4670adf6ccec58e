import assert from "node:assert/strict";
import { test } from "node:test";

import { AcceptedText, type Span } from "../src/acceptedText.ts";

const [HERE, ELSEWHERE] = ["file:///a.ts", "file:///b.ts"];

/** A document whose changes are followed. */
class Edited {
  readonly accepted = new AcceptedText();
  text: string;

  constructor(text: string) {
    this.text = text;
  }

  change(start: number, end: number, text: string): boolean {
    this.text = this.text.slice(0, start) + text + this.text.slice(end);
    const change = { rangeOffset: start, rangeLength: end - start, text };
    return this.accepted.changed(HERE, [change], (span: Span) => this.text.slice(span.start, span.end));
  }

  get last(): string | undefined {
    const span = this.accepted.in(HERE);
    return span && this.text.slice(span.start, span.end);
  }
}

test("what was accepted is followed through edits before, in and behind it", () => {
  const edited = new Edited("x = readFile(a)\n");
  edited.accepted.accept(HERE, { start: 4, end: 12 });
  edited.change(0, 0, "import os\n");
  edited.change(edited.text.length, edited.text.length, "z\n");
  assert.equal(edited.last, "readFile");
  edited.change(18, 22, "File2");
  assert.equal(edited.last, "readFile2");
  edited.change(12, 16, "");
  assert.equal(edited.last, "adFile2");
  assert.equal(edited.accepted.in(ELSEWHERE), undefined);
  edited.change(0, edited.text.length, "");
  assert.equal(edited.last, undefined);
});

test("words of a suggestion are accepted one by one, and keys accept nothing", () => {
  const edited = new Edited("x = ");
  edited.accepted.isSuggested(HERE, 4, "join(first, last)");
  assert.equal(edited.change(4, 4, "j"), false);
  assert.equal(edited.change(5, 5, "oin"), true);
  assert.equal(edited.change(8, 8, "(first"), true);
  assert.equal(edited.last, "oin(first");
  assert.equal(edited.change(14, 14, "; y"), false); // pasted
  assert.equal(edited.last, "oin(first");
  edited.accepted.isSuggested(HERE, 0, undefined);
  assert.equal(edited.change(17, 17, "zz"), false);
});

test("lines of a suggestion are accepted whose ends are the document's", () => {
  const edited = new Edited("x = (\r\n");
  edited.accepted.isSuggested(HERE, 7, "  first,\n  last)");
  assert.equal(edited.change(7, 7, "  first,\r\n"), true);
  assert.equal(edited.change(17, 17, "  last"), true);
});
