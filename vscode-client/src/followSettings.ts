// Applies changed settings to the language server, and restarts it where it must.

import * as vscode from "vscode";

import * as config from "./config.ts";
import type { Server } from "./server.ts";
import type { Switch } from "./switch.ts";

/** A change of `midfill.enabled` for one language or folder is none of its plain value: it restarts nothing. */
export function followSettings(server: Server, onOff: Switch): vscode.Disposable {
  let enabled = config.isEnabled();
  return vscode.workspace.onDidChangeConfiguration((event) => {
    const before = enabled;
    enabled = config.isEnabled();
    if (enabled !== before) {
      void onOff.followSetting().then(() => server.restart());
    } else if (config.affectsMidfill(event, "serverPath")) {
      void server.restart();
    } else if (config.affectsMidfill(event)) {
      void server.changeSettings();
    }
  });
}
