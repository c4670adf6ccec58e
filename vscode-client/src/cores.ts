// Commands that control the core, the process that holds the model; the language server executes them.

import * as vscode from "vscode";

import * as config from "./config.ts";
import { execute } from "./execute.ts";
import type { CoreDescription } from "./messages.ts";
import type { CoreTokens } from "./secrets.ts";
import type { Server } from "./server.ts";

const RESTART = "midfill.restartCore";
const STOP = "midfill.stopCore";
const UNLOAD = "midfill.unloadModel";
const FREE = "midfill.freeMemory";
const LIST = "midfill.listCores";

interface Entry extends vscode.QuickPickItem {
  run?: () => Thenable<unknown>;
}

/** Restart this window's language server, and then the core, which all windows share. */
export async function restart(server: Server): Promise<void> {
  await server.restart();
  if (server.client !== undefined) {
    await control(server, RESTART, "Restarted.");
  }
}

/** Show the cores of the server's machine with their memory, and what can be done with this window's. */
export async function manageCore(server: Server): Promise<void> {
  const address = config.coreAddress();
  const token = { label: "$(key) Set the token…", description: address, run: () => vscode.commands.executeCommand("midfill.setCoreToken") };
  const entries: Entry[] = [
    { label: "$(debug-pause) Unload the model", description: "until the next suggestion", run: () => unloadModel(server) },
    { label: "$(trash) Free memory…", description: "the model stays loaded", run: () => freeMemory(server) },
    { label: "$(debug-stop) Stop the core", description: "for every editor on this machine", run: () => stopCore(server) },
    ...(address === "" ? [] : [token]),
    ...(await described(server)),
  ];
  const chosen = await vscode.window.showQuickPick(entries, { title: "Core: the process that holds the model, for all windows" });
  await chosen?.run?.();
}

export async function stopCore(server: Server): Promise<void> {
  await control(server, STOP, "Stopped the core for every editor on this machine. A suggestion that you request by hand, or Restart, starts it.");
}

export async function unloadModel(server: Server): Promise<void> {
  await control(server, UNLOAD, "Unloaded the model. The next suggestion loads it.");
}

/** Drop the results that the core keeps for text it has read, in memory alone or also on disk, as the user chooses. */
export async function freeMemory(server: Server): Promise<void> {
  const choices = [
    { label: "In memory", description: "the next suggestion reads it from disk", disk: false },
    { label: "In memory and on disk", description: "the next suggestion computes its prompt anew", disk: true },
  ];
  const chosen = await vscode.window.showQuickPick(choices, { title: "Free what the core keeps of text that it has read" });
  if (chosen !== undefined) {
    const freed = await execute(server, FREE, [chosen.disk]);
    if (typeof freed === "string") {
      void vscode.window.showInformationMessage(`midfill: Freed ${freed}.`);
    }
  }
}

/** Ask the user for the token of the core that the settings name, and store it. */
export async function askForToken(tokens: CoreTokens): Promise<void> {
  const address = config.coreAddress();
  if (address === "") {
    void vscode.window.showInformationMessage(
      "The core of this machine needs no token. For one on another machine, set midfill.core to its address first.",
    );
    return;
  }
  const token = await vscode.window.showInputBox({
    title: `Token of ${address}`,
    prompt: "VS Code keeps it in the secret storage, for this address only. Leave it empty to remove the token.",
    password: true,
    ignoreFocusOut: true,
  });
  if (token !== undefined) {
    await tokens.set(address, token.trim());
  }
}

/** The cores that run on the server's machine, below a separator. */
async function described(server: Server): Promise<Entry[]> {
  const cores = ((await execute(server, LIST)) ?? []) as CoreDescription[];
  const running = cores.filter(({ state }) => state !== "stopped").length;
  const entries = cores.map(({ model, state, detail, summary, pid }) => ({
    label: model,
    description: [detail === "" ? state : `${state}: ${detail}`, ...(pid === null ? [] : [`process ${pid}`])].join(", "),
    detail: summary,
  }));
  return [{ label: `${running} running`, kind: vscode.QuickPickItemKind.Separator }, ...entries];
}

async function control(server: Server, command: string, done: string): Promise<void> {
  if ((await execute(server, command)) !== undefined) {
    void vscode.window.showInformationMessage(`midfill: ${done}`);
  }
}
