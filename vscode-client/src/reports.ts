// Shows the output of `midfill doctor`, `midfill stats` and `midfill play`, each in a terminal that ends it when closed.

import * as vscode from "vscode";

import { run } from "./processes.ts";
import type { Server } from "./server.ts";
import { asEnvironment } from "./settings.ts";

/** Show the output of a subcommand, run with the language server's settings. */
export function showReport(server: Server, subcommand: string): void {
  const { command } = server;
  if (command === undefined) {
    void vscode.window.showWarningMessage("The midfill command was not found: install it, or choose its path.");
    return;
  }
  const pty = new Report(command, subcommand, asEnvironment(server.settings()));
  vscode.window.createTerminal({ name: `midfill ${subcommand}`, pty }).show(true);
}

/** A terminal without a shell: it shows one command's output with colours, and stays open until it is closed. */
class Report implements vscode.Pseudoterminal {
  private readonly written = new vscode.EventEmitter<string>();
  readonly onDidWrite = this.written.event;
  private readonly closing = new AbortController();

  constructor(
    private readonly command: string,
    private readonly subcommand: string,
    private readonly environment: Record<string, string>,
  ) {}

  open(size: vscode.TerminalDimensions | undefined): void {
    const onLine = (line: string): void => {
      this.written.fire(`${line}\r\n`);
    };
    const environment = { ...this.environment, FORCE_COLOR: "1", COLUMNS: String(size?.columns ?? 100) };
    onLine(`${this.command} ${this.subcommand}`);
    run(this.command, [this.subcommand], { environment, onLine, signal: this.closing.signal }).catch((error: unknown) => {
      onLine(String(error));
    });
  }

  close(): void {
    this.closing.abort();
  }
}
