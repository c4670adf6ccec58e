// The menu behind the status bar item.

import * as vscode from "vscode";

import * as config from "./config.ts";
import { execute } from "./execute.ts";
import type { Action, Reason } from "./messages.ts";
import type { Server } from "./server.ts";

interface Entry extends vscode.QuickPickItem {
  command?: string;
  /** Of the language server. */
  action?: Action;
  /** To be shown in full: the menu cuts it. */
  reason?: Reason;
}

export async function showMenu(server: Server): Promise<void> {
  const chosen = await vscode.window.showQuickPick(entries(server), { title: "midfill" });
  if (chosen?.command !== undefined) {
    await vscode.commands.executeCommand(chosen.command);
  } else if (chosen?.action !== undefined) {
    await execute(server, chosen.action.command, chosen.action.arguments);
  } else if (chosen?.reason !== undefined) {
    await showReason(server, chosen.reason);
  }
}

async function showReason(server: Server, { explanation, actions }: Reason): Promise<void> {
  const titles = actions.map(({ title }) => title);
  const chosen = await vscode.window.showInformationMessage(`midfill: ${explanation}`, ...titles);
  const action = actions.find(({ title }) => title === chosen);
  if (action !== undefined) {
    await execute(server, action.command, action.arguments);
  }
}

/** Snooze for a time that the user chooses. */
export async function snooze(server: Server): Promise<void> {
  const times = [5, 15, 60].map((minutes) => ({ label: `For ${minutes} minutes`, minutes }));
  const choices = [...times, { label: "Until the language server restarts", minutes: 0 }];
  const chosen = await vscode.window.showQuickPick(choices, { title: "Snooze suggestions in this window" });
  if (chosen !== undefined) {
    await execute(server, "midfill.snooze", [chosen.minutes]);
    await vscode.commands.executeCommand("editor.action.inlineSuggest.hide");
  }
}

/** Why nothing is suggested in the active editor, and what to do about it. */
function reasonEntries(server: Server): Entry[] {
  const reason = server.reason(vscode.window.activeTextEditor?.document);
  if (reason === undefined) {
    return [];
  }
  const why = { label: `$(info) No suggestion: ${reason.text}`, detail: reason.explanation, reason };
  const actions = reason.actions.map((action) => ({ label: `$(play) ${action.title}`, detail: action.detail, action }));
  return [why, ...actions, { label: "", kind: vscode.QuickPickItemKind.Separator }];
}

function entries(server: Server): Entry[] {
  const { phase } = server;
  if (phase.name === "missing") {
    return [
      { label: "$(cloud-download) Install midfill", command: "midfill.install" },
      { label: "$(folder-opened) Choose the midfill command…", command: "midfill.chooseServer" },
      ...diagnosis,
    ];
  }
  if (phase.name === "off" || !server.isOn()) {
    return [...reasonEntries(server), { label: "$(play) Switch on here", command: "midfill.toggle" }, ...diagnosis];
  }
  return [
    ...reasonEntries(server),
    { label: "$(bell-slash) Snooze…", command: "midfill.snoozeSuggestions" },
    { label: "$(circle-slash) Switch off here", command: "midfill.toggle" },
    ...languageEntry(),
    { label: "$(server-process) Choose model…", command: "midfill.chooseModel" },
    { label: "$(key) Set the token of the core…", command: "midfill.setCoreToken" },
    { label: "", kind: vscode.QuickPickItemKind.Separator },
    { label: "$(debug-restart) Restart the language server", command: "midfill.restart" },
    { label: "$(server) Restart the core", command: "midfill.core.restart" },
    { label: "$(debug-stop) Stop the core", description: "for every editor", command: "midfill.core.stop" },
    { label: "$(debug-pause) Unload the model", description: "until the next suggestion", command: "midfill.core.unload" },
    { label: "$(trash) Free what is resident…", description: "the model stays loaded", command: "midfill.core.free" },
    { label: "$(list-unordered) Show cores", description: "model, state, memory", command: "midfill.core.list" },
    { label: "$(dashboard) Open dashboard", description: "what is resident, and what each key costs", command: "midfill.dashboard" },
    { label: "$(beaker) Open playground", description: "an editor in the browser", command: "midfill.play" },
    { label: "$(pulse) Doctor", description: "check the installation and the core", command: "midfill.doctor" },
    { label: "$(graph) Show statistics", description: "accepted, kept, time saved", command: "midfill.stats" },
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
