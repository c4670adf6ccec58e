import assert from "node:assert/strict";
import { test } from "node:test";

import type { Disposable, SecretStorage } from "vscode";

import { CoreTokens } from "../src/secrets.ts";

/** The secret storage that all windows share. */
function storage(): SecretStorage {
  const stored = new Map<string, string>();
  return {
    get: (key) => Promise.resolve(stored.get(key)),
    store: (key, value) => Promise.resolve(void stored.set(key, value)),
    delete: (key) => Promise.resolve(void stored.delete(key)),
    onDidChange: () => undefined as unknown as Disposable, // not listened to here
  };
}

test("a token that one window sets, changes and forgets reaches another", async () => {
  const shared = storage();
  const [one, other] = [new CoreTokens(shared), new CoreTokens(shared)];
  await other.load("wss://core");
  assert.equal(other.get("wss://core"), undefined);
  for (const token of ["first", "second"]) {
    await one.set("wss://core", token);
    await other.load("wss://core");
    assert.equal(other.get("wss://core"), token);
  }
  await one.set("wss://core", "");
  await other.load("wss://core");
  assert.equal(other.get("wss://core"), undefined);
});

test("a token belongs to its address", async () => {
  const tokens = new CoreTokens(storage());
  await tokens.set("wss://core", "secret");
  await tokens.load("wss://core");
  assert.equal(tokens.get("wss://other"), undefined);
  await tokens.load("wss://other");
  assert.equal(tokens.get("wss://other"), undefined);
  await tokens.load("");
  assert.equal(tokens.get(""), undefined);
});
