import assert from "node:assert/strict";
import { registerHooks } from "node:module";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import type { Server } from "../src/server.ts";

const DOCUMENT = { uri: "file:///a.py" };
let opened: () => void = () => undefined;
const nothing = { dispose: () => undefined };

const stub = {
  Disposable: { from: () => nothing },
  window: { activeTextEditor: { document: DOCUMENT }, onDidChangeActiveTextEditor: () => nothing },
  workspace: {
    getConfiguration: () => ({ get: () => true }),
    onDidChangeConfiguration: () => nothing,
    onDidOpenTextDocument: (listener: () => void) => {
      opened = listener;
      return nothing;
    },
  },
  extensions: { getExtension: () => undefined, onDidChange: () => nothing },
};
Object.assign(globalThis, { vscodeStub: stub });
const names = Object.keys(stub).map((name) => `export const ${name} = globalThis.vscodeStub.${name};`);
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "vscode"
      ? { url: `data:text/javascript,${names.join("")}`, shortCircuit: true }
      : next(specifier, context),
});
const { announceSwitches } = await import("../src/switching.ts");

test("a switch is announced once, and again where the server has opened the document anew", async () => {
  const announced: unknown[] = [];
  let changed: () => void = () => undefined;
  let resent: () => void = () => undefined;
  announceSwitches({
    client: { announceSwitch: (...said: unknown[]) => Promise.resolve(announced.push(said)) },
    core: {},
    isOn: () => false,
    isSwitchedOff: true,
    onDidChange: (listener: () => void) => (changed = listener),
    onDidResend: (listener: () => void) => (resent = listener),
  } as unknown as Server);
  const said = [DOCUMENT, "workspace", []];
  changed();
  assert.deepEqual(announced, [said]);
  opened();
  assert.deepEqual(announced, [said]); // the client's own message goes first
  await sleep(1);
  assert.deepEqual(announced, [said, said]);
  resent();
  assert.deepEqual(announced, [said, said, said]);
});
