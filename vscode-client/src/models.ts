// Choosing the model.

import * as vscode from "vscode";

import * as config from "./config.ts";

const KNOWN: readonly vscode.QuickPickItem[] = [
  { label: "bundled", description: "comes with midfill; a demonstration for Python" },
  { label: "Qwen/Qwen2.5-Coder-0.5B", description: "1 GB; also without a GPU" },
  { label: "Qwen/Qwen2.5-Coder-1.5B", description: "3 GB" },
  { label: "Qwen/Qwen2.5-Coder-7B", description: "15 GB" },
  { label: "bigcode/starcoder2-3b", description: "6 GB" },
  { label: "deepseek-ai/deepseek-coder-1.3b-base", description: "3 GB" },
];
const FOLDER: vscode.QuickPickItem = { label: "$(folder) A folder…" };
const OTHER: vscode.QuickPickItem = { label: "$(edit) Another name on the Hugging Face hub…" };

export async function chooseModel(): Promise<void> {
  const model = await ask();
  if (model !== undefined) {
    await config.setModel(model);
  }
}

async function ask(): Promise<string | undefined> {
  const chosen = await vscode.window.showQuickPick([...KNOWN, FOLDER, OTHER], {
    title: "Model",
    placeHolder: "The core downloads it if needed, and loads it once for all windows",
  });
  if (chosen === FOLDER) {
    const folders = await vscode.window.showOpenDialog({ canSelectFolders: true, canSelectFiles: false });
    return folders?.[0]?.fsPath;
  }
  if (chosen === OTHER) {
    const name = await vscode.window.showInputBox({ title: "Model", prompt: "As organisation/name" });
    return name?.trim() === "" ? undefined : name?.trim();
  }
  return chosen?.label;
}
