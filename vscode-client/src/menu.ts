// The menu behind the status bar item.

import * as vscode from "vscode";

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
      { label: "$(cloud-download) Install midfill, or choose its command…", command: "midfill.install" },
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
    ...languageEntry(server),
    { label: "$(server-process) Choose model…", command: "midfill.chooseModel" },
    { label: "", kind: vscode.QuickPickItemKind.Separator },
    { label: "$(server) Manage the core…", description: "memory, stop", command: "midfill.core" },
    { label: "$(graph) Show statistics", description: "accepted, kept, by day", command: "midfill.stats" },
    ...diagnosis,
  ];
}

const diagnosis: readonly Entry[] = [
  { label: "$(debug-restart) Restart", command: "midfill.restart" },
  { label: "$(pulse) Check the installation", command: "midfill.doctor" },
  { label: "$(output) Show log", command: "midfill.showLog" },
  { label: "$(gear) Settings", command: "midfill.openSettings" },
];

/** Empty where the language is off for another reason than the setting that this changes. */
function languageEntry(server: Server): Entry[] {
  const document = vscode.window.activeTextEditor?.document;
  if (document === undefined || server.reason(document)?.text === `off for ${document.languageId}`) {
    return [];
  }
  const verb = server.isOn(document) ? "$(circle-slash) Switch off" : "$(play) Switch on";
  return [{ label: `${verb} for ${document.languageId}`, command: "midfill.toggleLanguage" }];
}
