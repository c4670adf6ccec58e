// The extension: every collaborator, wired here. Nothing is waited for.

import * as vscode from "vscode";

import { MENU, registerCommands } from "./commands.ts";
import * as config from "./config.ts";
import { followCursor } from "./cursorMoves.ts";
import { announceFailures } from "./failures.ts";
import { Installer } from "./installer.ts";
import { CoreTokens } from "./secrets.ts";
import { Server } from "./server.ts";
import { StatusBar } from "./statusBar.ts";

let server: Server | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const channel = vscode.window.createOutputChannel("midfill", { log: true });
  const environment = vscode.Uri.joinPath(context.globalStorageUri, "environment").fsPath;
  const tokens = new CoreTokens(context.secrets);
  server = new Server(channel, tokens, environment);
  const installer = new Installer(server, channel, environment, context.globalState);
  context.subscriptions.push(
    channel,
    new StatusBar(server, MENU),
    registerCommands({ server, installer, tokens, channel }),
    followCursor(server),
    announceFailures(server, installer),
    vscode.workspace.onDidChangeConfiguration(applyTo(server)),
    vscode.workspace.onDidGrantWorkspaceTrust(() => server?.restart()),
  );
  void server.restart();
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}

function applyTo(changing: Server): (event: vscode.ConfigurationChangeEvent) => void {
  return (event) => {
    if (config.affectsMidfill(event, "enabled") || config.affectsMidfill(event, "serverPath")) {
      void changing.restart();
    } else if (config.affectsMidfill(event)) {
      void changing.changeSettings();
    }
  };
}
