// Choosing the model: among those on this machine, as the language server lists them, and those to download.

import * as vscode from "vscode";

import * as config from "./config.ts";
import type { ModelDescription } from "./messages.ts";
import type { Server } from "./server.ts";

const LIST = "midfill.listModels";

interface Entry extends vscode.QuickPickItem {
  /** The value for the setting, or how to ask for it; a separator has none. */
  model?: string | (() => Promise<string | undefined>);
  /** Why it cannot run. */
  problem?: string;
}

const TO_DOWNLOAD: readonly Entry[] = [
  download("Qwen/Qwen2.5-Coder-0.5B", "1 GB; also without a GPU"),
  download("Qwen/Qwen2.5-Coder-1.5B", "3 GB"),
  download("Qwen/Qwen2.5-Coder-7B", "15 GB"),
  download("bigcode/starcoder2-3b", "6 GB"),
  download("deepseek-ai/deepseek-coder-1.3b-base", "3 GB"),
];

const OTHERS: readonly Entry[] = [
  { label: "$(file) A GGUF file…", model: () => open({ filters: { GGUF: ["gguf"] } }) },
  { label: "$(folder) A folder…", model: () => open({ canSelectFolders: true, canSelectFiles: false }) },
  { label: "$(edit) Another name on the Hugging Face hub…", model: askForName },
];

export async function chooseModel(server: Server): Promise<void> {
  const chosen = await vscode.window.showQuickPick(entries(server), {
    title: "Model",
    placeHolder: "The core downloads it if needed, and loads it once for all windows",
    matchOnDescription: true,
  });
  if (chosen?.problem !== undefined) {
    void vscode.window.showWarningMessage(`midfill cannot run ${chosen.label}: ${chosen.problem}`);
    return;
  }
  const model = typeof chosen?.model === "function" ? await chosen.model() : chosen?.model;
  if (model !== undefined) {
    await config.setModel(model);
  }
}

/** The models on this machine, with those that cannot run at the end. */
async function entries(server: Server): Promise<Entry[]> {
  const found = (await listed(server)).map(described);
  const here = new Set(found.map(({ label }) => label));
  const usable = found.filter(({ problem }) => problem === undefined);
  return [
    ...section("On this machine", usable),
    ...section(
      "To download",
      TO_DOWNLOAD.filter(({ label }) => !here.has(label)),
    ),
    ...section("Others", OTHERS),
    ...section(
      "On this machine, but midfill cannot run them",
      found.filter(({ problem }) => problem !== undefined),
    ),
  ];
}

/** What the server lists; midfill's own models where it cannot, which the user is told. */
async function listed(server: Server): Promise<ModelDescription[]> {
  try {
    if (server.client === undefined) {
      throw new Error("no language server runs; it lists the models on this machine");
    }
    return (await server.client.execute(LIST)) as ModelDescription[];
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    void vscode.window.showWarningMessage(`midfill: ${reason}`);
    return ["bundled", "tiny"].map((name) => ({ name, source: "midfill", family: "", sizeBytes: 0, problem: "" }));
  }
}

function described({ name, source, family, sizeBytes, quantization, problem }: ModelDescription): Entry {
  const size = sizeBytes === 0 ? "" : `${(sizeBytes / 1e9).toFixed(sizeBytes < 1e8 ? 2 : 1)} GB`;
  const description = [source, family, size, quantization].filter(Boolean).join(", ");
  return { label: name, description, model: name, ...(problem === "" ? {} : { problem, detail: problem }) };
}

function section(label: string, found: readonly Entry[]): Entry[] {
  return found.length === 0 ? [] : [{ label, kind: vscode.QuickPickItemKind.Separator }, ...found];
}

function download(name: string, description: string): Entry {
  return { label: name, description, model: name };
}

async function open(options: vscode.OpenDialogOptions): Promise<string | undefined> {
  return (await vscode.window.showOpenDialog(options))?.[0]?.fsPath;
}

async function askForName(): Promise<string | undefined> {
  const name = await vscode.window.showInputBox({ title: "Model", prompt: "As organisation/name" });
  return name?.trim() === "" ? undefined : name?.trim();
}
