// The steps of a start: whatever fails or hangs is told, and the next start goes on.

import assert from "node:assert/strict";
import * as path from "node:path";
import { afterEach, beforeEach, mock, test, type TestContext } from "node:test";

import type { LogOutputChannel } from "vscode";

import type { CoreTokens } from "../src/secrets.ts";
import type { Switch } from "../src/switch.ts";
import { scratchFolder, writeScript } from "./scratch.ts";
import { stubVscode } from "./vscodeStub.ts";

const settings: Record<string, unknown> = {};
let python: { isActive: boolean; activate: () => Promise<unknown> } | undefined;
const asked: string[] = [];
const started: string[] = [];
let start: () => Promise<void> = () => Promise.resolve();

class EventEmitter {
  readonly event = (): void => undefined;
  readonly fire = (): void => undefined;
}

class Client {
  readonly command: string;

  constructor(command: string) {
    this.command = command;
  }

  async start(): Promise<void> {
    await start();
    started.push(this.command);
  }

  readonly stop = (): Promise<void> => Promise.resolve();
}

const section = {
  get: (name: string, fallback: unknown) => settings[name] ?? fallback,
  inspect: (name: string) => ({ defaultValue: "", globalValue: settings[name] }),
};
const stub = {
  EventEmitter,
  Client,
  extensions: {
    getExtension: (name: string) => {
      asked.push(name);
      return python;
    },
  },
  workspace: { isTrusted: true, workspaceFolders: [], getConfiguration: () => section },
};
stubVscode(stub, "./client.ts");
const { Server } = await import("../src/server.ts");

const PATH = process.env.PATH;

beforeEach(() => {
  Object.keys(settings).forEach((name) => {
    Reflect.deleteProperty(settings, name);
  });
  python = undefined;
  asked.length = started.length = 0;
  start = () => Promise.resolve();
  process.env.PATH = "";
});
afterEach(() => {
  mock.timers.reset();
  process.env.PATH = PATH;
});

function server(folder: string, load: () => Promise<void> = () => Promise.resolve()): InstanceType<typeof Server> {
  const channel = { info: () => undefined, warn: () => undefined, error: () => undefined };
  const places = { environment: path.join(folder, "own"), clone: path.join(folder, "clone.json") };
  const tokens = { load, get: () => undefined };
  return new Server(
    channel as unknown as LogOutputChannel,
    tokens as unknown as CoreTokens,
    { needsServer: true } as unknown as Switch,
    places,
  );
}

function commandIn(context: TestContext): [string, string] {
  const folder = scratchFolder(context);
  return [folder, writeScript(path.join(folder, "own/bin/midfill"))];
}

test("with serverPath, no other extension is asked", async (context) => {
  const [folder, command] = commandIn(context);
  settings.serverPath = command;
  python = { isActive: false, activate: () => Promise.reject(new Error("asked")) };
  await server(folder).restart();
  assert.deepEqual([started, asked], [[command], []]);
});

test("an extension that is not active is not activated where the command is found without it", async (context) => {
  const [folder, command] = commandIn(context);
  let activated = false;
  python = { isActive: false, activate: () => Promise.resolve((activated = true)) };
  await server(folder).restart();
  assert.deepEqual([started, activated], [[command], false]);
});

test("a Python extension that never becomes active leaves no start undone", async (context) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const stays = server(scratchFolder(context));
  let restarted = Promise.resolve();
  await new Promise<void>((resolve) => {
    const activate = (): Promise<unknown> => {
      setImmediate(resolve);
      return new Promise(() => undefined);
    };
    python = { isActive: false, activate };
    restarted = stays.restart();
  });
  mock.timers.tick(5000);
  await restarted;
  assert.equal(stays.phase.name, "missing");
});

for (const [how, load] of [
  ["fails", () => Promise.reject(new Error("locked"))],
  ["hangs", () => new Promise<void>(() => undefined)],
] as const) {
  test(`a secret storage that ${how} ends in "failed", with what to do, and a restart goes on`, async (context) => {
    const [folder, command] = commandIn(context);
    mock.timers.enable({ apis: ["setTimeout"] });
    settings.core = "wss://host";
    let loading: () => Promise<void> = load;
    let reached = (): void => undefined;
    const stays = server(folder, () => {
      setImmediate(reached);
      return loading();
    });
    let restarted = Promise.resolve();
    await new Promise<void>((resolve) => {
      reached = resolve;
      restarted = stays.restart();
    });
    mock.timers.tick(20_000);
    await restarted;
    assert.ok(stays.phase.name === "failed");
    assert.match(stays.phase.reason, /secret storage does not give the token of wss:\/\/host: .* then restart midfill/);
    mock.timers.reset();
    loading = () => Promise.resolve();
    await stays.restart();
    assert.deepEqual(started, [command]);
  });
}

test("a server that does not start is told, and a restart starts another", async (context) => {
  const [folder, command] = commandIn(context);
  start = () => Promise.reject(new Error("no module named midfill"));
  const stays = server(folder);
  await stays.restart();
  assert.deepEqual(stays.phase, { name: "failed", reason: `\`${command} lsp\` did not start: no module named midfill` });
  start = () => Promise.resolve();
  await stays.restart();
  assert.deepEqual(started, [command]);
});

test("another interpreter starts another server only if it has another command", async (context) => {
  const [folder, command] = commandIn(context);
  const stays = server(folder);
  await stays.restart();
  await stays.lookAgain();
  assert.deepEqual(started, [command]);
  const chosen = writeScript(path.join(folder, "chosen/bin/midfill"));
  const environments = { getActiveEnvironmentPath: () => ({ path: path.join(folder, "chosen/bin/python") }) };
  python = { isActive: true, exports: { environments }, activate: () => Promise.resolve() } as typeof python;
  await stays.lookAgain();
  assert.deepEqual(started, [command, chosen]);
});
