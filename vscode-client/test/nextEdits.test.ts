import assert from "node:assert/strict";
import { registerHooks } from "node:module";
import { mock, test } from "node:test";

import type { Server } from "../src/server.ts";

type Selected = (event: { textEditor: object; selections: { isSingleLine: boolean }[] }) => void;

const active = { document: { version: 1 }, selection: { isEmpty: true, active: {} }, selections: [{}] };
let selected: Selected = () => undefined;
const stub = {
  Disposable: { from: () => undefined },
  ThemeColor: Object,
  window: {
    activeTextEditor: active,
    createTextEditorDecorationType: () => undefined,
    onDidChangeTextEditorSelection: (listener: Selected) => (selected = listener),
    onDidChangeActiveTextEditor: () => undefined,
  },
  workspace: { onDidChangeTextDocument: () => undefined },
};
Object.assign(globalThis, { vscodeStub: stub });
const names = Object.keys(stub).map((name) => `export const ${name} = globalThis.vscodeStub.${name};`);
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "vscode" ? { url: `data:text/javascript,${names.join("")}`, shortCircuit: true } : next(specifier, context),
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
