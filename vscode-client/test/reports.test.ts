import assert from "node:assert/strict";
import * as path from "node:path";
import { test } from "node:test";

import type { Pseudoterminal } from "vscode";

import type { Server } from "../src/server.ts";
import { scratchFolder, writeScript } from "./scratch.ts";
import { stubVscode } from "./vscodeStub.ts";

let shown: Pseudoterminal | undefined;
const warnings: string[] = [];
let written: (text: string) => void = () => undefined;

class EventEmitter {
  readonly event = (): void => undefined;
  readonly fire = (text: string): void => {
    written(text);
  };
}

stubVscode({
  EventEmitter,
  window: {
    createTerminal: ({ pty }: { pty: Pseudoterminal }) => {
      shown = pty;
      return { show: () => undefined };
    },
    showWarningMessage: (message: string) => warnings.push(message),
  },
});
const { showDoctor } = await import("../src/reports.ts");

test("the doctor runs with the language server's settings, and ends with its terminal", async (context) => {
  const folder = scratchFolder(context);
  const command = writeScript(path.join(folder, "midfill"), 'echo "$1 with $MIDFILL_MODEL"; exec sleep 60');
  const said = new Promise((resolve) => {
    written = (text) => {
      if (text.startsWith("doctor")) {
        resolve(text);
      }
    };
  });
  showDoctor({ command, settings: () => ({ model: "tiny" }) } as unknown as Server);
  shown?.open(undefined);
  assert.equal(await said, "doctor with tiny\r\n");
  const ended = new Promise((resolve) => {
    written = resolve;
  });
  shown?.close();
  assert.match(String(await ended), /AbortError/);
});

test("without the command, the user is told", () => {
  showDoctor({ command: undefined } as unknown as Server);
  assert.equal(warnings.length, 1);
});
