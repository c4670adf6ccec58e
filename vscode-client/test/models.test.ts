import assert from "node:assert/strict";
import { registerHooks } from "node:module";
import { beforeEach, test } from "node:test";

import type { ModelDescription } from "../src/messages.ts";
import type { Server } from "../src/server.ts";

interface Item {
  label: string;
  kind?: number;
  description?: string;
  detail?: string;
}

const SEPARATOR = -1;
let offered: Item[] = [];
let picked = "";
let written: unknown[] = [];
let warnings: string[] = [];

const stub = {
  QuickPickItemKind: { Separator: SEPARATOR },
  ConfigurationTarget: { Global: 1 },
  window: {
    showQuickPick: async (items: Promise<Item[]>) => {
      offered = await items;
      return offered.find(({ label }) => label === picked);
    },
    showOpenDialog: () => Promise.resolve([{ fsPath: "/models/some.gguf" }]),
    showWarningMessage: (message: string) => warnings.push(message),
  },
  workspace: {
    getConfiguration: () => ({
      inspect: () => undefined,
      update: (...change: unknown[]) => Promise.resolve(written.push(change)),
    }),
  },
};
Object.assign(globalThis, { vscodeStub: stub });
const names = Object.keys(stub).map((name) => `export const ${name} = globalThis.vscodeStub.${name};`);
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "vscode"
      ? { url: `data:text/javascript,${names.join("")}`, shortCircuit: true }
      : next(specifier, context),
});
const { chooseModel } = await import("../src/models.ts");

const OLLAMA = {
  name: "ollama:qwen2.5-coder:1.5b",
  source: "Ollama",
  family: "qwen2",
  sizeBytes: 986e6,
  quantization: "Q4_K_M",
  problem: "",
};
const HUB = { ...OLLAMA, name: "Qwen/Qwen2.5-Coder-0.5B", source: "Hugging Face" };
const CHAT = { ...OLLAMA, name: "ollama:chat:7b", problem: "it has no markers" };

function serverThat(execute: (command: string) => Promise<unknown>): Server {
  return { client: { execute } } as unknown as Server;
}

function serverWith(...models: ModelDescription[]): Server {
  return serverThat((command) =>
    command === "midfill.listModels" ? Promise.resolve(models) : Promise.reject(new Error(command)),
  );
}

beforeEach(() => {
  [picked, offered, written, warnings] = ["", [], [], []];
});

test("the models on this machine come first, and those that cannot run last", async () => {
  await chooseModel(serverWith(OLLAMA, HUB, CHAT));
  const sections = offered.filter(({ kind }) => kind === SEPARATOR).map(({ label }) => label);
  assert.deepEqual(sections, [
    "On this machine",
    "To download",
    "Others",
    "On this machine, but midfill cannot run them",
  ]);
  assert.deepEqual(
    offered.slice(1, 3).map(({ label }) => label),
    [OLLAMA.name, HUB.name],
  );
  assert.equal(offered[1]?.description, "Ollama, qwen2, 1.0 GB, Q4_K_M");
  assert.equal(offered.filter(({ label }) => label === HUB.name).length, 1); // not to be downloaded again
  assert.equal(offered.at(-1)?.detail, CHAT.problem);
  assert.deepEqual(written, []);
});

test("the chosen model becomes the user's setting", async () => {
  picked = OLLAMA.name;
  await chooseModel(serverWith(OLLAMA));
  assert.deepEqual(written, [["model", OLLAMA.name, 1]]);
});

test("a file is chosen by its path", async () => {
  picked = "$(file) A GGUF file…";
  await chooseModel(serverWith());
  assert.deepEqual(written, [["model", "/models/some.gguf", 1]]);
});

test("a model that cannot run is not taken, and the reason is shown", async () => {
  picked = CHAT.name;
  await chooseModel(serverWith(CHAT));
  assert.deepEqual(written, []);
  assert.deepEqual(warnings, ["midfill cannot run ollama:chat:7b: it has no markers"]);
});

test("without the server's list, midfill's own models are offered", async () => {
  picked = "tiny";
  await chooseModel(serverThat(() => Promise.reject(new Error("`midfill models` failed"))));
  assert.deepEqual(warnings, ["midfill: `midfill models` failed"]);
  assert.deepEqual(written, [["model", "tiny", 1]]);
});
