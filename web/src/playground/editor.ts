// The editor: CodeMirror with ghost text; it reports edits and moves, one file at a time.

import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState, type Text, type Transaction } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";

import { ghostKeys, ghostText, show, type Suggestion } from "./ghostText.ts";
import { LANGUAGES } from "./languages.ts";
import type { Change, Place } from "./messages.ts";
import { type Sample, SAMPLES } from "./samples.ts";

export interface EditorListener {
  edited(name: string, changes: Change[]): void;
  /** Without a place, text is selected. */
  moved(name: string, place: Place | undefined): void;
  wanted(name: string, place: Place, invoked: boolean): void;
}

const theme = EditorView.theme({
  "&": { height: "100%", color: "var(--ink)", fontSize: "14px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6" },
  ".cm-content": { padding: "12px 0", caretColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--faint)", border: "none", paddingLeft: "8px" },
  ".cm-activeLine": { backgroundColor: "light-dark(#f6f4f0a8, #232730a8)" },
  ".cm-activeLineGutter": { backgroundColor: "transparent", color: "var(--soft)" },
  ".cm-cursor": { borderLeftColor: "var(--hit)", borderLeftWidth: "2px" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "light-dark(#dbe6f3, #2f4159)",
  },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--raised)", outline: "1px solid var(--line)" },
  ".tok-keyword, .tok-operatorKeyword, .tok-modifier": { color: "light-dark(#a3368b, #d58ac4)" },
  ".tok-string, .tok-string2": { color: "light-dark(#3a7d44, #8cc88f)" },
  ".tok-comment": { color: "light-dark(#85898f, #7c8491)" },
  ".tok-number, .tok-bool, .tok-atom": { color: "light-dark(#9a5b12, #dfae72)" },
  ".tok-typeName, .tok-className, .tok-namespace": { color: "light-dark(#7a5c00, #d9c27a)" },
  ".tok-definition, .tok-propertyName": { color: "light-dark(#2c5a94, #8db8ea)" },
  ".tok-punctuation, .tok-operator": { color: "light-dark(#5d6269, #a3a9b5)" },
});

export class Editor {
  readonly #listener: EditorListener;
  readonly #view: EditorView;
  readonly #states = new Map<string, EditorState>();
  #name: string;

  constructor(parent: HTMLElement, listener: EditorListener) {
    this.#listener = listener;
    const [first] = SAMPLES;
    for (const sample of SAMPLES) {
      this.#states.set(sample.name, this.#begin(sample));
    }
    this.#name = first?.name ?? "";
    // In a shadow root CodeMirror needs no inline styles, which the page's policy forbids.
    const root = parent.attachShadow({ mode: "open" });
    const host = document.createElement("div");
    host.style.height = "100%";
    root.append(host);
    this.#view = new EditorView({
      parent: host,
      root,
      state: this.#state(this.#name),
      dispatchTransactions: (transactions, view) => {
        view.update(transactions);
        transactions.forEach((transaction) => {
          this.#report(transaction);
        });
      },
    });
  }

  get name(): string {
    return this.#name;
  }

  /** The present text of a file. */
  text(name: string): string {
    return (name === this.#name ? this.#view.state : this.#state(name)).doc.toString();
  }

  /** Show another file, with its cursor where it was. */
  choose(name: string): void {
    this.#states.set(this.#name, this.#view.state);
    this.#name = name;
    this.#view.setState(this.#state(name));
    this.focus();
  }

  focus(): void {
    const cursor = this.#view.state.selection.main.head;
    this.#view.dispatch({ effects: EditorView.scrollIntoView(cursor, { y: "center" }) });
    this.#view.focus();
  }

  /** Where the cursor is, if nothing is selected. */
  get place(): Place | undefined {
    const { main } = this.#view.state.selection;
    return main.empty ? placeAt(this.#view.state.doc, main.head) : undefined;
  }

  /** Show these texts at the cursor, the first of them now; each replaces so many code units behind the cursor. */
  suggest(items: readonly [text: string, replaced: number][]): void {
    const from = this.#view.state.selection.main.head;
    const suggestions: Suggestion[] = items.map(([text, replaced]) => ({ from, text, replaced }));
    this.#view.dispatch({ effects: show.of(suggestions) });
  }

  #begin({ text, cursor, language }: Sample): EditorState {
    const invoke = (): boolean => {
      this.#ask(true);
      return true;
    };
    return EditorState.create({
      doc: text,
      selection: { anchor: cursor },
      extensions: [
        keymap.of([...ghostKeys, { key: "Alt-\\", run: invoke }]),
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
        lineNumbers(),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        indentUnit.of(language === "go" ? "\t" : language === "python" || language === "rust" ? "    " : "  "),
        LANGUAGES[language]?.() ?? [],
        syntaxHighlighting(classHighlighter),
        ghostText,
        theme,
      ],
    });
  }

  #state(name: string): EditorState {
    const state = this.#states.get(name);
    if (state === undefined) {
      throw new Error(`there is no file ${name}`);
    }
    return state;
  }

  #report(transaction: Transaction): void {
    if (transaction.docChanged) {
      this.#listener.edited(this.#name, changesOf(transaction));
      this.#ask(false);
    } else if (transaction.selection !== undefined) {
      this.#listener.moved(this.#name, this.place);
    }
  }

  #ask(invoked: boolean): void {
    if (this.place !== undefined) {
      this.#listener.wanted(this.#name, this.place, invoked);
    }
  }
}

/** The changes, the last one first, so that each is in the coordinates that the one before it left. */
function changesOf(transaction: Transaction): Change[] {
  const changes: Change[] = [];
  const { doc } = transaction.startState;
  transaction.changes.iterChanges((start, end, _from, _to, inserted) => {
    changes.unshift({ range: { start: placeAt(doc, start), end: placeAt(doc, end) }, text: inserted.toString() });
  });
  return changes;
}

function placeAt(doc: Text, offset: number): Place {
  const line = doc.lineAt(offset);
  return { line: line.number - 1, character: offset - line.from };
}
