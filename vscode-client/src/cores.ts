// Commands that control the core; the language server executes them.

import * as vscode from "vscode";

import { execute } from "./execute.ts";
import type { CoreDescription } from "./messages.ts";
import type { Server } from "./server.ts";

const RESTART = "midfill.restartCore";
const STOP = "midfill.stopCore";
const UNLOAD = "midfill.unloadModel";
const FREE = "midfill.freeMemory";
const LIST = "midfill.listCores";
const LINK_DASHBOARD = "midfill.linkDashboard";

export async function restartCore(server: Server): Promise<void> {
  await control(server, RESTART, "Restarted the core.");
}

export async function stopCore(server: Server): Promise<void> {
  await control(server, STOP, "Stopped the core for every editor on this machine. “Suggest Now” or “Restart the Core” starts it.");
}

export async function unloadModel(server: Server): Promise<void> {
  await control(server, UNLOAD, "Unloaded the model. The next suggestion loads it.");
}

/** Drop resident KV, of memory alone or also what is saved on disk, as the user chooses. */
export async function freeMemory(server: Server): Promise<void> {
  const choices = [
    { label: "In memory", description: "the next suggestion reads it from disk", disk: false },
    { label: "In memory and on disk", description: "the next suggestion computes its prompt anew", disk: true },
  ];
  const chosen = await vscode.window.showQuickPick(choices, { title: "Free what is resident; the model stays loaded" });
  if (chosen !== undefined) {
    const freed = await execute(server, FREE, [chosen.disk]);
    if (typeof freed === "string") {
      void vscode.window.showInformationMessage(`midfill: Freed ${freed}.`);
    }
  }
}

/** Show the cores that run on the server's machine. */
export async function listCores(server: Server): Promise<void> {
  const cores = (await execute(server, LIST)) as CoreDescription[] | undefined;
  if (cores !== undefined) {
    const items = cores.map(({ model, state, detail, summary, pid }) => ({
      label: model,
      description: [detail === "" ? state : `${state}: ${detail}`, ...(pid === null ? [] : [`process ${pid}`])].join(", "),
      detail: summary,
    }));
    const running = cores.filter(({ state }) => state !== "stopped").length;
    await vscode.window.showQuickPick(items, { title: "Cores on this machine", placeHolder: `${running} running` });
  }
}

/** Open the dashboard of the server's core in the browser. */
export async function openDashboard(server: Server): Promise<void> {
  const url = await execute(server, LINK_DASHBOARD);
  if (typeof url === "string") {
    await vscode.env.openExternal(vscode.Uri.parse(url));
  }
}

async function control(server: Server, command: string, done: string): Promise<void> {
  if ((await execute(server, command)) !== undefined) {
    void vscode.window.showInformationMessage(`midfill: ${done}`);
  }
}
