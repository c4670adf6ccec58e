import assert from "node:assert/strict";
import { mock, test } from "node:test";

import type { Server } from "../src/server.ts";
import { stubVscode } from "./vscodeStub.ts";

interface Editor {
  document: object;
  selection: { active: { line: number; character: number } };
}

const document = { uri: "file:///demo.py", version: 1 };
const [active, beside] = [0, 7].map((line): Editor => ({ document, selection: { active: { line, character: 0 } } })) as [Editor, Editor];
let selected: (event: { textEditor: Editor }) => void = () => undefined;
stubVscode({
  Disposable: { from: () => undefined },
  window: {
    activeTextEditor: active,
    onDidChangeTextEditorSelection: (listener: typeof selected) => (selected = listener),
    onDidChangeActiveTextEditor: () => undefined,
    onDidChangeWindowState: () => undefined,
  },
});
const { followCursor } = await import("../src/cursorMoves.ts");

test("a move is announced at rest, and not that of another editor's cursor by an edit of their document", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const lines: number[] = [];
  const moveCursor = (_document: object, { line }: { line: number }): void => void lines.push(line);
  followCursor({ client: { moveCursor } } as unknown as Server);
  selected({ textEditor: active });
  mock.timers.tick(100);
  document.version += 1; // a line end was typed
  active.selection.active.line += 1;
  beside.selection.active.line += 1;
  selected({ textEditor: active });
  selected({ textEditor: beside });
  mock.timers.tick(100);
  assert.deepEqual(lines, [0]);
});
