import assert from "node:assert/strict";
import { registerHooks } from "node:module";
import { test } from "node:test";

import type { Server } from "../src/server.ts";

const shown: string[] = [];
const offered: unknown[] = [];
let pick = 1;
const window = {
  showInformationMessage: (message: string) => shown.push(`information: ${message}`),
  showQuickPick: (items: unknown[]) => {
    offered.splice(0, offered.length, ...items);
    return Promise.resolve(items[pick]);
  },
  showErrorMessage: (message: string) => shown.push(`error: ${message}`),
};
Object.assign(globalThis, { vscodeWindow: window });
const STUB = `export const window = globalThis.vscodeWindow;
export const workspace = { getConfiguration: () => ({ get: (name, fallback) => globalThis.coreAddress ?? fallback }) };
export const commands = { executeCommand: (name) => globalThis.openExternal(name) };
export const QuickPickItemKind = { Separator: -1 };
export const env = { openExternal: globalThis.openExternal };
export const Uri = { parse: (url) => url };`;
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "vscode"
      ? { url: `data:text/javascript,${STUB}`, shortCircuit: true }
      : next(specifier, context),
});
const { freeMemory, manageCore, restart, stopCore, unloadModel } = await import("../src/cores.ts");

function serverThat(execute: (command: string, args?: unknown[]) => Promise<unknown>): Server {
  return { client: { execute } } as unknown as Server;
}

for (const command of [stopCore, unloadModel]) {
  test(`${command.name} announces success, or shows once why it failed`, async () => {
    shown.length = 0;
    await command(serverThat(() => Promise.resolve(null)));
    assert.match(shown.join("\n"), /^information: midfill: \w+ the (core|model)/);
    shown.length = 0;
    await command(serverThat(() => Promise.reject(new Error("not connected to a core"))));
    assert.deepEqual(shown, ["error: midfill: not connected to a core"]);
  });
}

test("what is resident is freed where the user says so", async () => {
  const asked: unknown[] = [];
  shown.length = 0;
  await freeMemory(serverThat((...call) => Promise.resolve(asked.push(call) && "900 resident tokens")));
  assert.deepEqual(asked, [["midfill.freeMemory", [true]]]);
  assert.deepEqual(shown, ["information: midfill: Freed 900 resident tokens."]);
});

test("one restart is that of the language server, and then of the core", async () => {
  const done: string[] = [];
  const server = {
    client: undefined as object | undefined,
    restart: () => {
      done.push("language server");
      server.client = { execute: (command: string) => Promise.resolve(done.push(command)) };
      return Promise.resolve();
    },
  };
  shown.length = 0;
  await restart(server as unknown as Server);
  assert.deepEqual(done, ["language server", "midfill.restartCore"]);
  assert.deepEqual(shown, ["information: midfill: Restarted."]);
});

test("a language server that does not start leaves the core alone, and has told why", async () => {
  shown.length = 0;
  await restart({ client: undefined, restart: () => Promise.resolve() } as unknown as Server);
  assert.deepEqual(shown, []);
});

test("cores are listed with their memory, below what can be done", async () => {
  const running = { model: "bundled", state: "ready", detail: "", pid: 7, summary: "process 300 MB" };
  const stopped = { model: "tiny", state: "stopped", detail: "by Neovim", pid: null, summary: "" };
  const asked: string[] = [];
  pick = 0;
  const server = serverThat((command) => Promise.resolve(asked.push(command) && [running, stopped]));
  await manageCore(server);
  assert.deepEqual(asked, ["midfill.listCores", "midfill.unloadModel"]);
  assert.deepEqual(offered.slice(-3), [
    { label: "1 running", kind: -1 },
    { label: "bundled", description: "ready, process 7", detail: "process 300 MB" },
    { label: "tiny", description: "stopped: by Neovim", detail: "" },
  ]);
  const labels = (): string => offered.map((entry) => (entry as { label: string }).label).join();
  assert.doesNotMatch(labels(), /token/);
  Object.assign(globalThis, { coreAddress: "wss://host" });
  await manageCore(server);
  assert.match(labels(), /Set the token/);
});
