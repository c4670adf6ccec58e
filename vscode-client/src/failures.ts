// Shows each failure once, with actions for the user.

import * as vscode from "vscode";

import type { Installer } from "./installer.ts";
import type { Server } from "./server.ts";

const ACTIONS: Record<string, string> = {
  Restart: "midfill.restart",
  Doctor: "midfill.doctor",
  "Show log": "midfill.showLog",
};

export function announceFailures(server: Server, installer: Installer): vscode.Disposable {
  let offered = false;
  let announced = "";
  return server.onDidChange(() => {
    const { phase } = server;
    if (phase.name === "missing" && !offered) {
      offered = true;
      void installer.offer();
    }
    const reason = phase.name === "failed" ? phase.reason : "";
    if (reason !== "" && reason !== announced) {
      void announce(reason);
    }
    announced = reason;
  });
}

async function announce(reason: string): Promise<void> {
  const answer = await vscode.window.showErrorMessage(`midfill: ${reason}`, ...Object.keys(ACTIONS));
  const command = answer === undefined ? undefined : ACTIONS[answer];
  if (command !== undefined) {
    await vscode.commands.executeCommand(command);
  }
}
