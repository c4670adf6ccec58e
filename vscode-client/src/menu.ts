// The menu behind the status bar item.

import * as vscode from "vscode";

import * as config from "./config.ts";
import type { Server } from "./server.ts";

interface Entry extends vscode.QuickPickItem {
  command?: string;
}

export async function showMenu(server: Server): Promise<void> {
  const chosen = await vscode.window.showQuickPick(entries(server), { title: "midfill" });
  if (chosen?.command !== undefined) {
    await vscode.commands.executeCommand(chosen.command);
  }
}

function entries({ phase, isOn }: Server): Entry[] {
  if (phase.name === "missing") {
    return [
      { label: "$(cloud-download) Install midfill", command: "midfill.install" },
      { label: "$(folder-opened) Choose the midfill command…", command: "midfill.chooseServer" },
      ...diagnosis,
    ];
  }
  if (phase.name === "off" || !isOn) {
    return [{ label: "$(play) Switch on here", command: "midfill.toggle" }, ...diagnosis];
  }
  return [
    { label: "$(circle-slash) Switch off here", command: "midfill.toggle" },
    ...languageEntry(),
    { label: "$(server-process) Choose model…", command: "midfill.chooseModel" },
    { label: "$(key) Set the token of the core…", command: "midfill.setCoreToken" },
    { label: "", kind: vscode.QuickPickItemKind.Separator },
    { label: "$(debug-restart) Restart the language server", command: "midfill.restart" },
    { label: "$(server) Restart the core", command: "midfill.core.restart" },
    { label: "$(debug-stop) Stop the core", description: "for every editor", command: "midfill.core.stop" },
    { label: "$(debug-pause) Unload the model", description: "until the next suggestion", command: "midfill.core.unload" },
    { label: "$(list-unordered) Show cores", description: "running on this machine", command: "midfill.core.list" },
    { label: "$(pulse) Doctor", description: "check the installation and the core", command: "midfill.doctor" },
    { label: "$(graph) Statistics", description: "shown, accepted, kept", command: "midfill.stats" },
    ...diagnosis,
  ];
}

const diagnosis: readonly Entry[] = [
  { label: "$(output) Show log", command: "midfill.showLog" },
  { label: "$(gear) Settings", command: "midfill.openSettings" },
];

function languageEntry(): Entry[] {
  const language = vscode.window.activeTextEditor?.document.languageId;
  if (language === undefined) {
    return [];
  }
  const off = config.disabledLanguages().includes(language);
  const label = off ? `$(play) Switch on for ${language}` : `$(circle-slash) Switch off for ${language}`;
  return [{ label, command: "midfill.toggleLanguage" }];
}
