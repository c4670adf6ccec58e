import assert from "node:assert/strict";
import { test } from "node:test";

import type { Server } from "../src/server.ts";
import type { Switch } from "../src/switch.ts";
import { stubVscode } from "./vscodeStub.ts";

type Changed = (event: { affectsConfiguration: (name: string) => boolean }) => void;

let enabled = true;
let changed: Changed = () => undefined;
stubVscode({
  workspace: {
    getConfiguration: () => ({ get: (name: string, fallback: unknown) => (name === "enabled" ? enabled : fallback) }),
    onDidChangeConfiguration: (listener: Changed) => {
      changed = listener;
    },
  },
});
const { followSettings } = await import("../src/followSettings.ts");

const done: string[] = [];
const note = (what: string) => (): Promise<void> => Promise.resolve(void done.push(what));
followSettings(
  { restart: note("restart"), changeSettings: note("change") } as unknown as Server,
  { followSetting: note("follow") } as unknown as Switch,
);

/** What is done after a change of this setting. */
async function after(name: string): Promise<string[]> {
  done.length = 0;
  changed({ affectsConfiguration: (asked) => `${name}.`.startsWith(`${asked}.`) });
  await new Promise(setImmediate);
  return [...done];
}

test("midfill.enabled for one language restarts nothing, and leaves the switch of the workspace", async () => {
  assert.deepEqual(await after("midfill.enabled"), ["change"]); // its plain value is what it was
});

test("the plain value is followed, and counts instead of the switch of the workspace", async () => {
  enabled = false;
  assert.deepEqual(await after("midfill.enabled"), ["follow", "restart"]);
  assert.deepEqual(await after("midfill.enabled"), ["change"]);
});

test("another command is started, and other settings are sent", async () => {
  assert.deepEqual(await after("midfill.serverPath"), ["restart"]);
  assert.deepEqual(await after("midfill.maxTokens"), ["change"]);
  assert.deepEqual(await after("editor.fontSize"), []);
});
