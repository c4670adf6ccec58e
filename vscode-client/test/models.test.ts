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
    showInputBox: () => Promise.resolve(" b/typed "),
    showInformationMessage: (message: string) => warnings.push(message),
    showErrorMessage: (message: string) => warnings.push(message),
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
const REMOTE = {
  ...{ name: "a/coder-GGUF", source: "Hugging Face hub", family: "", sizeBytes: 1.66e9, quantization: "" },
  ...{ problem: "", here: false, licence: "apache-2.0" },
};
const CHAT = { ...OLLAMA, name: "ollama:chat:7b", problem: "it has no markers" };

function serverThat(execute: (command: string, args?: unknown[]) => Promise<unknown>): Server {
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
  await chooseModel(serverWith(OLLAMA, HUB, REMOTE, CHAT));
  const sections = offered.filter(({ kind }) => kind === SEPARATOR).map(({ label }) => label);
  assert.deepEqual(sections, [
    "On this machine",
    "To download from the Hugging Face hub",
    "Others",
    "midfill cannot run them here",
  ]);
  assert.deepEqual(
    offered.slice(1, 3).map(({ label }) => label),
    [OLLAMA.name, HUB.name],
  );
  assert.equal(offered[1]?.description, "Ollama, qwen2, 1.0 GB, Q4_K_M");
  assert.equal(offered.find(({ label }) => label === REMOTE.name)?.description, "1.7 GB, apache-2.0");
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

/** A server that lists REMOTE, and answers each download with the next of these. */
function serverThatDownloads(asked: unknown[], ...answers: unknown[]): Server {
  return serverThat((command, args) => {
    if (command === "midfill.listModels") {
      return Promise.resolve([REMOTE]);
    }
    asked.push(args?.[0]);
    const answer = answers.shift();
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  });
}

test("a model of the hub is downloaded, then taken; of several quantizations the user chooses one", async () => {
  const asked: unknown[] = [];
  picked = REMOTE.name;
  await chooseModel(
    serverThatDownloads(asked, { choices: [{ name: REMOTE.name, sizeBytes: 1.66e9 }] }, { path: "/cache/coder" }),
  );
  assert.deepEqual(asked, [REMOTE.name, REMOTE.name]);
  assert.deepEqual(offered, [{ label: REMOTE.name, description: "1.7 GB" }]);
  assert.deepEqual(written, [["model", REMOTE.name, 1]]);
});

test("a download that is stopped or fails changes no setting, and is told", async () => {
  picked = "$(edit) Another name on the Hugging Face hub…";
  const asked: unknown[] = [];
  await chooseModel(serverThatDownloads(asked, { cancelled: true }));
  await chooseModel(serverThatDownloads(asked, new Error("the disk is full")));
  assert.deepEqual(asked, ["b/typed", "b/typed"]);
  assert.deepEqual(written, []);
  assert.deepEqual(warnings, [
    "midfill: Stopped. The next download of b/typed goes on from there.",
    "midfill: the disk is full",
  ]);
});

test("without a language server, a download says so", async () => {
  picked = "$(edit) Another name on the Hugging Face hub…";
  await chooseModel({ client: undefined } as unknown as Server);
  assert.deepEqual(written, []);
  assert.equal(warnings.at(-1), "midfill: no language server is running");
});
