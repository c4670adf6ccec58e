// Ghost text: a suggestion behind the cursor, which stays while its text is typed and leaves with anything else.

import { type EditorState, StateEffect, StateField, type Transaction } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, type KeyBinding, WidgetType } from "@codemirror/view";

/** Text for the place `from`, in place of the `replaced` code units behind it. */
export interface Suggestion {
  from: number;
  text: string;
  replaced: number;
}

/** The alternatives, of which one is shown. */
interface Shown {
  items: readonly Suggestion[];
  index: number;
}

export const show = StateEffect.define<readonly Suggestion[]>();
const choose = StateEffect.define<number>();

const field = StateField.define<Shown | undefined>({
  create: () => undefined,
  update(shown, transaction) {
    for (const effect of transaction.effects) {
      if (effect.is(show)) {
        return effect.value.length > 0 ? { items: effect.value, index: 0 } : undefined;
      }
      if (effect.is(choose) && shown !== undefined) {
        return { ...shown, index: (shown.index + effect.value + shown.items.length) % shown.items.length };
      }
    }
    return shown === undefined ? undefined : followed(shown, transaction);
  },
  provide: (of) => EditorView.decorations.compute([of, "doc"], (state) => decorations(state, state.field(of))),
});

/** What is left of the shown suggestion: its rest, if the transaction inserted its beginning at the cursor. */
function followed(shown: Shown, transaction: Transaction): Shown | undefined {
  const now = current(shown);
  const { main } = transaction.newSelection;
  if (!transaction.docChanged) {
    return main.empty && main.head === now.from ? shown : undefined;
  }
  let typed: string | undefined;
  let count = 0;
  transaction.changes.iterChanges((start, end, _from, _to, inserted) => {
    count += 1;
    typed = start === now.from && end === start ? inserted.toString() : undefined;
  });
  if (typed === undefined || count !== 1 || main.head !== now.from + typed.length) {
    return undefined;
  }
  const text = now.text.slice(typed.length);
  const goesOn = now.text.startsWith(typed) && text !== "";
  return goesOn ? { items: [{ ...now, from: now.from + typed.length, text }], index: 0 } : undefined;
}

function current({ items, index }: Shown): Suggestion {
  const item = items[index];
  if (item === undefined) {
    throw new Error(`there is no suggestion ${index} of ${items.length}`);
  }
  return item;
}

export function suggestionIn(state: EditorState): Suggestion | undefined {
  const shown = state.field(field, false);
  return shown === undefined ? undefined : current(shown);
}

class Ghost extends WidgetType {
  readonly #text: string;
  readonly #tag: "span" | "div";

  constructor(text: string, tag: "span" | "div") {
    super();
    this.#text = text;
    this.#tag = tag;
  }

  override eq(other: Ghost): boolean {
    return other.#text === this.#text && other.#tag === this.#tag;
  }

  toDOM(): HTMLElement {
    const made = document.createElement(this.#tag);
    made.className = "cm-ghost";
    made.textContent = this.#text;
    return made;
  }

  override ignoreEvent(): boolean {
    return false;
  }
}

function decorations({ doc }: EditorState, shown: Shown | undefined): DecorationSet {
  if (shown === undefined) {
    return Decoration.none;
  }
  const { from, text, replaced } = current(shown);
  const [first = "", ...rest] = text.split("\n");
  const line = doc.lineAt(from);
  const end = Math.min(from + replaced, line.to);
  const inline = { widget: new Ghost(first, "span"), side: 1 };
  const marks = [end > from ? Decoration.replace(inline).range(from, end) : Decoration.widget(inline).range(from)];
  if (rest.length > 0) {
    marks.push(Decoration.widget({ widget: new Ghost(rest.join("\n"), "div"), side: 2, block: true }).range(line.to));
  }
  return Decoration.set(marks, true);
}

function acceptAll(view: EditorView): boolean {
  const suggestion = suggestionIn(view.state);
  if (suggestion === undefined) {
    return false;
  }
  const { from, text, replaced } = suggestion;
  view.dispatch({
    changes: { from, to: Math.min(from + replaced, view.state.doc.lineAt(from).to), insert: text },
    selection: { anchor: from + text.length },
    effects: show.of([]),
    userEvent: "input.complete",
    scrollIntoView: true,
  });
  return true;
}

function acceptWord(view: EditorView): boolean {
  const suggestion = suggestionIn(view.state);
  if (suggestion === undefined) {
    return false;
  }
  const word = /^\s*(?:[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s]+|$)/u.exec(suggestion.text)?.[0] ?? suggestion.text;
  if (word.length === suggestion.text.length) {
    return acceptAll(view);
  }
  view.dispatch({
    changes: { from: suggestion.from, insert: word },
    selection: { anchor: suggestion.from + word.length },
    userEvent: "input.complete",
    scrollIntoView: true,
  });
  return true;
}

function dismiss(view: EditorView): boolean {
  const isShown = suggestionIn(view.state) !== undefined;
  if (isShown) {
    view.dispatch({ effects: show.of([]) });
  }
  return isShown;
}

function cycle(by: number): (view: EditorView) => boolean {
  return (view) => {
    view.dispatch({ effects: choose.of(by) });
    return suggestionIn(view.state) !== undefined;
  };
}

export const ghostText = [
  field,
  EditorView.baseTheme({
    ".cm-ghost": { color: "var(--faint)", whiteSpace: "pre", fontStyle: "italic" },
    "div.cm-ghost": { padding: "0 6px" },
  }),
];

export const ghostKeys: readonly KeyBinding[] = [
  { key: "Tab", run: acceptAll },
  { key: "Ctrl-ArrowRight", mac: "Cmd-ArrowRight", run: acceptWord },
  { key: "Escape", run: dismiss },
  { key: "Alt-]", run: cycle(1) },
  { key: "Alt-[", run: cycle(-1) },
];
