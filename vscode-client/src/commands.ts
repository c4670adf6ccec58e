// The extension's commands by name.

import * as vscode from "vscode";

import * as config from "./config.ts";
import { askForToken, manageCore, restart } from "./cores.ts";
import type { Installer } from "./installer.ts";
import { showMenu, snooze } from "./menu.ts";
import { addImports } from "./missingImports.ts";
import { chooseModel } from "./models.ts";
import type { NextEdits } from "./nextEdits.ts";
import { showDoctor } from "./reports.ts";
import type { CoreTokens } from "./secrets.ts";
import type { Server } from "./server.ts";
import { showStatistics } from "./statistics.ts";

export interface Collaborators {
  server: Server;
  installer: Installer;
  tokens: CoreTokens;
  channel: vscode.LogOutputChannel;
  nextEdits: NextEdits;
}

export const MENU = "midfill.menu";

/** The settings page, the menu and the walkthrough run some that the palette does not list. */
export function registerCommands({ server, installer, tokens, channel, nextEdits }: Collaborators): vscode.Disposable {
  const handlers: Record<string, (argument?: string[]) => unknown> = {
    [MENU]: () => showMenu(server),
    "midfill.toggle": () => server.toggle(),
    "midfill.toggleLanguage": toggleLanguage,
    "midfill.snoozeSuggestions": () => snooze(server),
    "midfill.chooseModel": () => chooseModel(server),
    "midfill.restart": () => restart(server),
    "midfill.core": () => manageCore(server),
    "midfill.setCoreToken": () => askForToken(tokens),
    "midfill.doctor": () => {
      showDoctor(server);
    },
    "midfill.stats": () => showStatistics(server),
    "midfill.showLog": () => {
      channel.show();
    },
    "midfill.goToNextEdit": (otherwise) => nextEdits.go(otherwise),
    "midfill.refuseNextEdit": (otherwise) => nextEdits.refuse(otherwise),
    "midfill.addImports": () => addImports(server.client),
    "midfill.install": () => installer.choose(),
    "midfill.openSettings": () => vscode.commands.executeCommand("workbench.action.openSettings", "midfill."),
  };
  const registered = Object.entries(handlers).map(([name, handler]) => vscode.commands.registerCommand(name, handler));
  return vscode.Disposable.from(...registered);
}

async function toggleLanguage(): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  if (document !== undefined) {
    await config.toggleLanguage(document);
  }
}
