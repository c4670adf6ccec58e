import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";

import { stubVscode } from "./vscodeStub.ts";

interface Extension {
  isActive: boolean;
  exports?: unknown;
  activate: () => Promise<unknown>;
}

let extension: Extension | undefined;
let activations = 0;
const warnings: string[] = [];
const log = { warn: (message: string) => warnings.push(message) };
const listeners: (() => void)[] = [];
const workspace = { isTrusted: true, workspaceFolders: [{ uri: { scheme: "file", fsPath: "/project" } }] };
const listen = (listener: () => void): object => {
  listeners.push(listener);
  return {};
};
stubVscode({
  Disposable: { from: () => ({}) },
  extensions: { getExtension: () => extension, onDidChange: listen },
  window: { onDidChangeActiveTextEditor: listen },
  workspace,
});
const { isUntrusted, watchInterpreter, workspaceEnvironments } = await import("../src/python.ts");

const CUSTOMARY = ["/project/.venv", "/project/venv"];
const api = { environments: { getActiveEnvironmentPath: () => ({ path: "/env/bin/python" }) } };

/** The Python extension, which becomes active as this says. */
function installed(isActive: boolean, activated: () => Promise<unknown>): void {
  extension = {
    isActive,
    ...(isActive && { exports: api }),
    activate: () => {
      activations += 1;
      return activated();
    },
  };
}

beforeEach(() => {
  activations = 0;
  warnings.length = listeners.length = 0;
  workspace.isTrusted = true;
});
afterEach(() => {
  mock.timers.reset();
});

test("an active Python extension is asked, and one that is not active is left alone", async () => {
  installed(true, () => Promise.reject(new Error("is active")));
  assert.deepEqual(await workspaceEnvironments(log, { activate: false }), ["/env", ...CUSTOMARY]);
  installed(false, () => Promise.resolve(api));
  assert.deepEqual(await workspaceEnvironments(log, { activate: false }), CUSTOMARY);
  assert.equal(activations, 0);
  assert.deepEqual(await workspaceEnvironments(log, { activate: true }), ["/env", ...CUSTOMARY]);
  extension = undefined;
  assert.deepEqual(await workspaceEnvironments(log, { activate: true }), CUSTOMARY);
});

test("a Python extension that fails, or has another interface, is gone on without", async () => {
  installed(false, () => Promise.reject(new Error("broken")));
  assert.deepEqual(await workspaceEnvironments(log, { activate: true }), CUSTOMARY);
  assert.match(warnings.join(), /going on without the Python extension: Error: broken/);
  for (const other of [undefined, {}, { environments: {} }]) {
    installed(false, () => Promise.resolve(other));
    assert.deepEqual(await workspaceEnvironments(log, { activate: true }), CUSTOMARY);
  }
});

test("a Python extension that never becomes active is waited for 5 s", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  installed(false, () => new Promise(() => undefined));
  const environments = workspaceEnvironments(log, { activate: true });
  mock.timers.tick(5000);
  assert.deepEqual(await environments, CUSTOMARY);
  assert.match(warnings.join(), /no answer within 5 s/);
});

test("an untrusted workspace has no environments, and a file in it is not to be run", async () => {
  installed(true, () => Promise.resolve(api));
  assert.equal(isUntrusted("/project/.venv/bin/midfill"), false);
  workspace.isTrusted = false;
  assert.deepEqual(await workspaceEnvironments(log, { activate: true }), []);
  assert.equal(isUntrusted("/project/.venv/bin/midfill"), true);
  assert.equal(isUntrusted("/project-2/.venv/bin/midfill"), false);
});

test("another interpreter is noticed, also of a Python extension that becomes active later", () => {
  let changes = 0;
  let choose = (): void => undefined;
  const onDidChangeActiveEnvironmentPath = (listener: () => void): object => {
    choose = listener;
    return {};
  };
  installed(false, () => Promise.resolve(api));
  watchInterpreter(() => (changes += 1));
  listeners.forEach((changed) => {
    changed();
  });
  assert.equal(changes, 0);
  extension = { isActive: true, exports: { environments: { onDidChangeActiveEnvironmentPath } }, activate: () => Promise.resolve() };
  listeners.forEach((changed) => {
    changed();
  });
  assert.equal(changes, 1); // it may know an interpreter
  choose();
  assert.equal(changes, 2);
});
