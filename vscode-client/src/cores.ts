// Commands that control the core; the language server executes them.

import * as vscode from "vscode";

import type { CoreDescription } from "./messages.ts";
import type { Server } from "./server.ts";

const RESTART = "midfill.restartCore";
const STOP = "midfill.stopCore";
const UNLOAD = "midfill.unloadModel";
const LIST = "midfill.listCores";

export async function restartCore(server: Server): Promise<void> {
  await control(server, RESTART, "Restarted the core.");
}

export async function stopCore(server: Server): Promise<void> {
  await control(server, STOP, "Stopped the core for every editor on this machine. “Restart the Core” starts one.");
}

export async function unloadModel(server: Server): Promise<void> {
  await control(server, UNLOAD, "Unloaded the model. The next suggestion loads it.");
}

/** Show the cores that run on the server's machine. */
export async function listCores(server: Server): Promise<void> {
  const cores = (await execute(server, LIST)) as CoreDescription[] | undefined;
  if (cores !== undefined) {
    const items = cores.map(({ model, state, detail, memoryBytes, pid }) => ({
      label: model,
      description: detail === "" ? state : `${state}: ${detail}`,
      detail: `${Math.round(memoryBytes / 1e6)} MB, process ${pid}`,
    }));
    await vscode.window.showQuickPick(items, { title: "Cores on this machine", placeHolder: `${cores.length} running` });
  }
}

async function control(server: Server, command: string, done: string): Promise<void> {
  if ((await execute(server, command)) !== undefined) {
    void vscode.window.showInformationMessage(`midfill: ${done}`);
  }
}

/** The command's result, null if it has none; undefined after a failure, which this function shows. */
async function execute(server: Server, command: string): Promise<unknown> {
  try {
    if (server.client === undefined) {
      throw new Error("no language server is running, which controls the core");
    }
    return (await server.client.execute(command)) ?? null;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    void vscode.window.showErrorMessage(`midfill: ${reason}`);
    return undefined;
  }
}
