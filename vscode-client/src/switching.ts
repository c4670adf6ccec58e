// Announces to the server what switches suggestions off in the editor itself, since the server words every reason.

import * as vscode from "vscode";

import * as config from "./config.ts";
import type { EditorSwitch } from "./messages.ts";
import type { Server } from "./server.ts";

/** Extensions that show inline suggestions of their own. */
const RIVALS = [
  "github.copilot",
  "Codeium.codeium",
  "Supermaven.supermaven",
  "TabNine.tabnine-vscode",
  "TabbyML.vscode-tabby",
  "Continue.continue",
  "ggml-org.llama-vscode",
  "sourcegraph.cody-ai",
  "AmazonWebServices.amazon-q-vscode",
  "Google.geminicodeassist",
];

export function announceSwitches(server: Server): vscode.Disposable {
  let sent = "";
  const announce = (): void => {
    const document = vscode.window.activeTextEditor?.document;
    if (document === undefined || server.client === undefined || server.core === undefined) {
      sent = ""; // a server that starts again knows nothing
      return;
    }
    const off = switchOf(server, document);
    const rivals = activeRivals();
    const now = JSON.stringify([document.uri.toString(), off, rivals]);
    if (now !== sent) {
      sent = now;
      void server.client.announceSwitch(document, off, rivals);
    }
  };
  const announceAgain = (): void => {
    sent = "";
    announce();
  };
  announce();
  return vscode.Disposable.from(
    server.onDidChange(announce),
    server.onDidResend(announceAgain),
    // A change of the language is a close and an open, which the client sends after this event.
    vscode.workspace.onDidOpenTextDocument(() => setTimeout(announceAgain)),
    vscode.window.onDidChangeActiveTextEditor(announce),
    vscode.workspace.onDidChangeConfiguration(announce),
    vscode.extensions.onDidChange(announce),
  );
}

function switchOf(server: Server, document: vscode.TextDocument): EditorSwitch | null {
  if (!server.isOn(document)) {
    return server.isSwitchedOff ? "workspace" : "setting";
  }
  return config.showsInlineSuggestions(document) ? null : "hidden";
}

function activeRivals(): string[] {
  const active = RIVALS.map((id) => vscode.extensions.getExtension(id)).filter((found) => found?.isActive === true);
  return active.map((found) => String((found?.packageJSON as { displayName?: string }).displayName ?? found?.id));
}
