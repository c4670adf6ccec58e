// The extension's entry point: creates and wires all parts, and waits for none.

import * as vscode from "vscode";

import { MENU, registerCommands } from "./commands.ts";
import * as config from "./config.ts";
import { followCursor } from "./cursorMoves.ts";
import { announceFailures } from "./failures.ts";
import { followSettings } from "./followSettings.ts";
import { Installer } from "./installer.ts";
import { NextEdits } from "./nextEdits.ts";
import { watchInterpreter } from "./python.ts";
import { CoreTokens } from "./secrets.ts";
import { Server } from "./server.ts";
import { StatusBar } from "./statusBar.ts";
import { Switch } from "./switch.ts";
import { announceSwitches } from "./switching.ts";

let server: Server | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const channel = vscode.window.createOutputChannel("midfill", { log: true });
  const built = vscode.Uri.joinPath(context.extensionUri, "dist");
  const environment = vscode.Uri.joinPath(context.globalStorageUri, "environment").fsPath;
  const clone = vscode.Uri.joinPath(built, "clone.json").fsPath;
  const carried = vscode.Uri.joinPath(built, "wheels").fsPath;
  const tokens = new CoreTokens(context.secrets);
  const onOff = new Switch(context.workspaceState, config.isEnabled);
  server = new Server(channel, tokens, onOff, { environment, clone });
  const installer = new Installer(server, channel, { environment, carried }, context.globalState);
  const nextEdits = new NextEdits(server);
  context.subscriptions.push(
    channel,
    nextEdits,
    new StatusBar(server, MENU),
    registerCommands({ server, installer, tokens, channel, nextEdits }),
    followCursor(server),
    announceSwitches(server),
    announceFailures(server, installer),
    followSettings(server, onOff),
    watchInterpreter(() => void server?.lookAgain()),
    context.secrets.onDidChange(() => server?.changeSettings()),
    vscode.workspace.onDidGrantWorkspaceTrust(() => server?.restart()),
  );
  void server.restart();
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}
