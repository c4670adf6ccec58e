// The extension's commands by name.

import * as vscode from "vscode";

import * as config from "./config.ts";
import { freeMemory, listCores, openDashboard, restartCore, stopCore, unloadModel } from "./cores.ts";
import type { Installer } from "./installer.ts";
import { showMenu, snooze } from "./menu.ts";
import { chooseModel } from "./models.ts";
import { openPlayground, showDoctor } from "./reports.ts";
import type { CoreTokens } from "./secrets.ts";
import type { Server } from "./server.ts";
import { showStatistics } from "./statistics.ts";

export interface Collaborators {
  server: Server;
  installer: Installer;
  tokens: CoreTokens;
  channel: vscode.LogOutputChannel;
}

export const MENU = "midfill.menu";

export function registerCommands(parts: Collaborators): vscode.Disposable {
  const { server, installer, channel } = parts;
  const handlers: Record<string, () => unknown> = {
    [MENU]: () => showMenu(server),
    "midfill.toggle": () => server.toggle(),
    "midfill.toggleLanguage": toggleLanguage,
    "midfill.snoozeSuggestions": () => snooze(server),
    "midfill.trigger": () => vscode.commands.executeCommand("editor.action.inlineSuggest.trigger"),
    "midfill.restart": () => server.restart(),
    "midfill.core.list": () => listCores(server),
    "midfill.core.restart": () => restartCore(server),
    "midfill.core.stop": () => stopCore(server),
    "midfill.core.unload": () => unloadModel(server),
    "midfill.core.free": () => freeMemory(server),
    "midfill.install": () => installer.install(),
    "midfill.chooseServer": () => installer.choosePath(),
    "midfill.chooseModel": () => chooseModel(server),
    "midfill.setCoreToken": () => setCoreToken(parts),
    "midfill.dashboard": () => openDashboard(server),
    "midfill.play": () => {
      openPlayground(server);
    },
    "midfill.doctor": () => {
      showDoctor(server);
    },
    "midfill.stats": () => showStatistics(server),
    "midfill.showLog": () => {
      channel.show();
    },
    "midfill.openSettings": () => vscode.commands.executeCommand("workbench.action.openSettings", "midfill."),
  };
  const registered = Object.entries(handlers).map(([name, handler]) => vscode.commands.registerCommand(name, handler));
  return vscode.Disposable.from(...registered);
}

async function toggleLanguage(): Promise<void> {
  const language = vscode.window.activeTextEditor?.document.languageId;
  if (language !== undefined) {
    await config.toggleLanguage(language);
  }
}

async function setCoreToken({ tokens }: Collaborators): Promise<void> {
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
