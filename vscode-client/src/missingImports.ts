// Adds the imports that accepted text lacks, by the code actions of the language's own extension.

import * as vscode from "vscode";

import type { Client } from "./client.ts";
import { addsImport, certainImport } from "./imports.ts";

const ALL = "source.addMissingImports";
/** So many are resolved: an unresolved one has no edit. */
const MOST_ACTIONS = 16;
const TOLD_MS = 4000;

/** Asks the user where several fit. */
export async function addImports(client: Client | undefined): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  const accepted = document && client?.acceptedIn(document);
  if (document === undefined || accepted === undefined) {
    return;
  }
  const { version } = document;
  const [all] = await actions(accepted, ALL);
  const chosen = all === undefined ? await fixes(accepted) : [all];
  if (chosen.length === 0) {
    vscode.window.setStatusBarMessage("midfill: the accepted text lacks no import", TOLD_MS);
  } else if (document.version === version) {
    await apply(chosen);
  } else {
    vscode.window.setStatusBarMessage("midfill: no import was added: the text has changed since", TOLD_MS);
  }
}

/** One fix for each diagnostic of a missing name. */
async function fixes({ uri, range }: vscode.Location): Promise<vscode.CodeAction[]> {
  const found = new Map<string, vscode.CodeAction>();
  for (const diagnostic of vscode.languages.getDiagnostics(uri)) {
    if (range.intersection(diagnostic.range) === undefined) {
      continue;
    }
    const offered = (await actions({ uri, range: diagnostic.range }, "quickfix")).filter(addsImport);
    const fix = certainImport(offered) ?? (await chooseOne(diagnostic.message, offered));
    if (fix !== undefined) {
      found.set(fix.title, fix); // two uses of one name lack the same import
    }
  }
  return [...found.values()];
}

async function chooseOne(what: string, offered: vscode.CodeAction[]): Promise<vscode.CodeAction | undefined> {
  const title = offered.length > 0 ? await vscode.window.showQuickPick(offered.map((fix) => fix.title), { title: what }) : "";
  return offered.find((fix) => fix.title === title);
}

async function actions({ uri, range }: { uri: vscode.Uri; range: vscode.Range }, kind: string): Promise<vscode.CodeAction[]> {
  const found = await vscode.commands.executeCommand<(vscode.CodeAction | vscode.Command)[] | undefined>(
    "vscode.executeCodeActionProvider", uri, range, kind, MOST_ACTIONS,
  );
  return (found ?? []).filter((each): each is vscode.CodeAction => typeof each.command !== "string");
}

/** All edits together, since each has the positions of the present text. */
async function apply(chosen: vscode.CodeAction[]): Promise<void> {
  const together = new vscode.WorkspaceEdit();
  for (const [uri, edits] of chosen.flatMap(({ edit }) => edit?.entries() ?? [])) {
    together.set(uri, [...together.get(uri), ...edits]);
  }
  if (together.size > 0) {
    await vscode.workspace.applyEdit(together);
  }
  for (const { command } of chosen) {
    if (command !== undefined) {
      await vscode.commands.executeCommand(command.command, ...((command.arguments ?? []) as unknown[]));
    }
  }
}
