// What `midfill doctor` and `midfill stats` print, in an output channel of its own.

import * as vscode from "vscode";

import { run } from "./processes.ts";
import type { Server } from "./server.ts";
import { asEnvironment } from "./settings.ts";

export class Reports implements vscode.Disposable {
  private readonly channel = vscode.window.createOutputChannel("midfill report");

  constructor(private readonly server: Server) {}

  dispose(): void {
    this.channel.dispose();
  }

  /** Run a subcommand with the settings that the language server works by. */
  async show(subcommand: string): Promise<void> {
    const { command } = this.server;
    if (command === undefined) {
      void vscode.window.showWarningMessage("midfill is not installed, or was not found.");
      return;
    }
    this.channel.clear();
    this.channel.appendLine(`${command} ${subcommand}`);
    this.channel.show(true);
    const onLine = (line: string): void => {
      this.channel.appendLine(line);
    };
    const environment = { ...asEnvironment(this.server.settings()), COLUMNS: "100" };
    try {
      await run(command, [subcommand], { environment, onLine });
    } catch (error) {
      onLine(String(error));
    }
  }
}
