import assert from "node:assert/strict";
import { test } from "node:test";

import type { Memento } from "vscode";

import { Switch } from "../src/switch.ts";

function memory(): Memento {
  const kept = new Map<string, unknown>();
  return {
    keys: () => [...kept.keys()],
    get: (key: string, fallback?: unknown) => kept.get(key) ?? fallback,
    update: (key: string, value: unknown) => {
      kept.set(key, value);
      return Promise.resolve();
    },
  } as Memento;
}

test("switching off here keeps the server, and is remembered for the workspace", async () => {
  const workspace = memory();
  const onOff = new Switch(workspace, () => true);
  assert.equal(onOff.isOn, true);
  await onOff.toggle();
  assert.deepEqual([onOff.isOn, onOff.needsServer, onOff.isSwitchedOff], [false, true, true]);
  assert.equal(new Switch(workspace, () => true).isOn, false);
  await onOff.toggle();
  assert.equal(onOff.isOn, true);
});

test("where the setting is off, switching on here asks for a server", async () => {
  const onOff = new Switch(memory(), () => false);
  assert.deepEqual([onOff.isOn, onOff.needsServer], [false, false]);
  await onOff.toggle();
  assert.deepEqual([onOff.isOn, onOff.needsServer], [true, true]);
});

test("a changed setting counts again", async () => {
  let enabled = true;
  const onOff = new Switch(memory(), () => enabled);
  await onOff.toggle();
  enabled = false;
  await onOff.followSetting();
  assert.equal(onOff.isOn, false);
  enabled = true;
  assert.equal(onOff.isOn, true);
});
