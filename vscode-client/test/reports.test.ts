import assert from "node:assert/strict";
import { registerHooks } from "node:module";
import * as path from "node:path";
import { test } from "node:test";

import type { Pseudoterminal } from "vscode";

import type { Server } from "../src/server.ts";
import { scratchFolder, writeScript } from "./scratch.ts";

let shown: Pseudoterminal | undefined;
const warnings: string[] = [];
let opened: (url: string) => void = () => undefined;

class EventEmitter {
  readonly event = (): void => undefined;
  readonly fire = (): void => undefined;
}

const stub = {
  EventEmitter,
  window: {
    createTerminal: ({ pty }: { pty: Pseudoterminal }) => {
      shown = pty;
      return { show: () => undefined };
    },
    showWarningMessage: (message: string) => warnings.push(message),
  },
  env: {
    openExternal: (url: string) => {
      opened(url);
    },
  },
  Uri: { parse: (url: string) => url },
};
Object.assign(globalThis, { vscodeStub: stub });
const names = Object.keys(stub).map((name) => `export const ${name} = globalThis.vscodeStub.${name};`);
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "vscode"
      ? { url: `data:text/javascript,${names.join("")}`, shortCircuit: true }
      : next(specifier, context),
});
const { openPlayground } = await import("../src/reports.ts");

test("VS Code opens the playground: the command may be on another machine than the browser", async (context) => {
  const folder = scratchFolder(context);
  const command = writeScript(path.join(folder, "midfill"), 'echo "http://127.0.0.1:7/playground#$1$2"; exec sleep 60');
  const url = new Promise((resolve) => {
    opened = resolve;
  });
  openPlayground({ command, settings: () => ({}) } as unknown as Server);
  shown?.open(undefined);
  assert.equal(await url, "http://127.0.0.1:7/playground#play--no-browser");
  shown?.close();
});

test("without the command, the user is told", () => {
  openPlayground({ command: undefined } as unknown as Server);
  assert.equal(warnings.length, 1);
});
