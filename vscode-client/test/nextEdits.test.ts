import assert from "node:assert/strict";
import { mock, test } from "node:test";

import type { Server } from "../src/server.ts";
import { stubVscode } from "./vscodeStub.ts";

type Selected = (event: { textEditor: object; selections: { isSingleLine: boolean }[] }) => void;

const active = { document: { version: 1 }, selection: { isEmpty: true, active: {} }, selections: [{}] };
let selected: Selected = () => undefined;
stubVscode({
  Disposable: { from: () => undefined },
  ThemeColor: Object,
  window: {
    activeTextEditor: active,
    createTextEditorDecorationType: () => undefined,
    onDidChangeTextEditorSelection: (listener: Selected) => (selected = listener),
    onDidChangeActiveTextEditor: () => undefined,
  },
  workspace: { onDidChangeTextDocument: () => undefined },
});
const { NextEdits } = await import("../src/nextEdits.ts");

test("lines that stay selected in another editor hold back no request", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  let asked = 0;
  const client = { isBusyIn: () => false, nextEdit: () => new Promise(() => (asked += 1)) };
  new NextEdits({ client, onDidChange: () => undefined } as unknown as Server);
  selected({ textEditor: {}, selections: [{ isSingleLine: false }] });
  selected({ textEditor: active, selections: [{ isSingleLine: true }] });
  mock.timers.tick(1000);
  assert.equal(asked, 1);
});
