// Choosing the model, among those that the language server lists: on this machine, or to download from the hub.

import * as vscode from "vscode";

import * as config from "./config.ts";
import { execute } from "./execute.ts";
import type { Download, ModelDescription } from "./messages.ts";
import type { Server } from "./server.ts";

const LIST = "midfill.listModels";
const DOWNLOAD = "midfill.downloadModel";

/** OWNER/NAME or OWNER/NAME:QUANTIZATION. */
const HUB_NAME = /^[A-Za-z0-9][\w.-]*\/[A-Za-z0-9][\w.-]*(:[\w.-]+)?$/;

interface Entry extends vscode.QuickPickItem {
  /** The value for the setting, or how to ask for it; a separator has none. */
  model?: string | (() => Promise<string | undefined>);
  /** Why it cannot run. */
  problem?: string;
  /** Whether it must be downloaded first. */
  remote?: boolean;
}

const OTHERS: readonly Entry[] = [
  { label: "$(file) A GGUF file…", model: () => open({ filters: { GGUF: ["gguf"] } }) },
  { label: "$(folder) A folder…", model: () => open({ canSelectFolders: true, canSelectFiles: false }) },
  { label: "$(edit) Another name on the Hugging Face hub…", model: askForName, remote: true },
];

export async function chooseModel(server: Server): Promise<void> {
  const chosen = await vscode.window.showQuickPick(entries(server), {
    title: "Model",
    placeHolder: "The core loads it once for all windows",
    matchOnDescription: true,
  });
  if (chosen?.problem !== undefined) {
    void vscode.window.showWarningMessage(`midfill cannot run ${chosen.label}: ${chosen.problem}`);
    return;
  }
  const model = typeof chosen?.model === "function" ? await chosen.model() : chosen?.model;
  if (model !== undefined) {
    await (chosen?.remote === true && HUB_NAME.test(model) ? downloadModel(server, model) : config.setModel(model));
  }
}

/** Download a model of the hub, of a quantization that the user chooses if there are several, and use it. */
async function downloadModel(server: Server, model: string): Promise<void> {
  const got = (await execute(server, DOWNLOAD, [model])) as Download | null | undefined;
  if (got?.path !== undefined) {
    await config.setModel(model);
  } else if (got?.cancelled === true) {
    void vscode.window.showInformationMessage(`midfill: Stopped. The next download of ${model} goes on from there.`);
  } else if (got?.choices !== undefined) {
    const items = got.choices.map(({ name, sizeBytes }) => ({ label: name, description: gigabytes(sizeBytes) }));
    const chosen = await vscode.window.showQuickPick(items, { title: "Quantization" });
    if (chosen !== undefined) {
      await downloadModel(server, chosen.label);
    }
  }
}

function gigabytes(bytes: number): string {
  return bytes === 0 ? "" : `${(bytes / 1e9).toFixed(bytes < 1e8 ? 2 : 1)} GB`;
}

/** The models on this machine, with those that cannot run at the end. */
async function entries(server: Server): Promise<Entry[]> {
  const found = (await listed(server)).map(described);
  const usable = found.filter(({ problem }) => problem === undefined);
  return [
    ...section(
      "On this machine",
      usable.filter(({ remote }) => remote !== true),
    ),
    ...section(
      "To download from the Hugging Face hub",
      usable.filter(({ remote }) => remote === true),
    ),
    ...section("Others", OTHERS),
    ...section(
      "midfill cannot run them here",
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

function described(model: ModelDescription): Entry {
  const { name, source, family, sizeBytes, quantization, licence, runsWith, problem } = model;
  const remote = model.here === false;
  const runs = runsWith ?? "";
  const parts = [remote ? "" : source, family, gigabytes(sizeBytes), quantization, licence, runs && `runs with ${runs}`];
  const description = parts.filter(Boolean).join(", ");
  return {
    label: name,
    description,
    model: name,
    remote,
    ...(problem !== "" && { detail: problem, problem }),
  };
}

function section(label: string, found: readonly Entry[]): Entry[] {
  return found.length === 0 ? [] : [{ label, kind: vscode.QuickPickItemKind.Separator }, ...found];
}

async function open(options: vscode.OpenDialogOptions): Promise<string | undefined> {
  return (await vscode.window.showOpenDialog(options))?.[0]?.fsPath;
}

async function askForName(): Promise<string | undefined> {
  const name = await vscode.window.showInputBox({ title: "Model", prompt: "OWNER/NAME, or OWNER/NAME:Q4_K_M of GGUF files" });
  return name?.trim() === "" ? undefined : name?.trim();
}
