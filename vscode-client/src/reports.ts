// Shows the output of `midfill doctor` in a terminal, which ends it when closed.

import * as vscode from "vscode";

import { run } from "./processes.ts";
import type { Server } from "./server.ts";
import { asEnvironment } from "./settings.ts";

/** A program or subcommand with its arguments. */
type Command = readonly [string, ...string[]];

/** Check the installation and the core, with the language server's settings. */
export function showDoctor(server: Server): void {
  const command = commandOf(server);
  if (command !== undefined) {
    const pty = new Report([command, "doctor"], asEnvironment(server.settings()));
    vscode.window.createTerminal({ name: "midfill doctor", pty }).show(true);
  }
}

/** The `midfill` command; undefined if there is none, which the user is told. */
export function commandOf({ command }: Server): string | undefined {
  if (command === undefined) {
    void vscode.window.showWarningMessage("The midfill command was not found: install it, or choose its path.");
  }
  return command;
}

/** A terminal without a shell: it shows one command's output with colours, and stays open until it is closed. */
class Report implements vscode.Pseudoterminal {
  private readonly written = new vscode.EventEmitter<string>();
  readonly onDidWrite = this.written.event;
  private readonly closing = new AbortController();
  private readonly command: Command;
  private readonly environment: Record<string, string>;

  constructor(command: Command, environment: Record<string, string>) {
    this.command = command;
    this.environment = environment;
  }

  open(size: vscode.TerminalDimensions | undefined): void {
    const onLine = (line: string): void => {
      this.written.fire(`${line}\r\n`);
    };
    const environment = { ...this.environment, FORCE_COLOR: "1", COLUMNS: String(size?.columns ?? 100) };
    const [command, ...args] = this.command;
    onLine(this.command.join(" "));
    run(command, args, { environment, onLine, signal: this.closing.signal }).catch((error: unknown) => {
      onLine(String(error));
    });
  }

  close(): void {
    this.closing.abort();
  }
}
