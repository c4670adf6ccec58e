import assert from "node:assert/strict";
import { test } from "node:test";

import type { Client } from "../src/client.ts";
import { stubVscode } from "./vscodeStub.ts";

const document = { version: 1 };
const fixes = ["b", "c"].map((name) => ({ title: `Add import a from ${name}`, edit: { entries: () => [["uri", []]] } }));
const said: string[] = [];
let applied = 0;
let isTypedMeanwhile = false;
stubVscode({
  window: {
    activeTextEditor: { document },
    setStatusBarMessage: (message: string) => said.push(message),
    showQuickPick: ([first]: string[]) => {
      document.version += isTypedMeanwhile ? 1 : 0;
      return Promise.resolve(first);
    },
  },
  languages: { getDiagnostics: () => [{ message: "No name 'a'", range: {} }] },
  commands: {
    executeCommand: (_name: string, _uri: unknown, _range: unknown, kind: string) =>
      Promise.resolve(kind === "quickfix" ? fixes : []),
  },
  workspace: { applyEdit: () => (applied += 1) },
  WorkspaceEdit: class {
    readonly size = 1;
    readonly get = (): unknown[] => [];
    readonly set = (): void => undefined;
  },
});
const { addImports } = await import("../src/missingImports.ts");

test("a chosen import is added, unless the text has changed while the user chose", async () => {
  const client = { acceptedIn: () => ({ uri: "uri", range: { intersection: () => ({}) } }) } as unknown as Client;
  await addImports(client);
  assert.deepEqual([applied, said], [1, []]);
  isTypedMeanwhile = true;
  await addImports(client);
  assert.deepEqual([applied, said], [1, ["midfill: no import was added: the text has changed since"]]);
});
