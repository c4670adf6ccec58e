// Shows the output of `midfill doctor` and `midfill play`, each in a terminal that ends it when closed.

import * as vscode from "vscode";

import { run } from "./processes.ts";
import type { Server } from "./server.ts";
import { asEnvironment } from "./settings.ts";

/** A program or subcommand with its arguments. */
type Command = readonly [string, ...string[]];

const PLAYGROUND = /^http:\/\/127\.0\.0\.1:\d+\/playground#/;

/** Check the installation and the core. */
export function showDoctor(server: Server): void {
  showReport(server, ["doctor"]);
}

/** Run the playground, and open it in the browser, which may be on another machine than the command. */
export function openPlayground(server: Server): void {
  showReport(server, ["play", "--no-browser"], (line) => {
    if (PLAYGROUND.test(line)) {
      void vscode.env.openExternal(vscode.Uri.parse(line));
    }
  });
}

/** The `midfill` command; undefined if there is none, which the user is told. */
export function commandOf({ command }: Server): string | undefined {
  if (command === undefined) {
    void vscode.window.showWarningMessage("The midfill command was not found: install it, or choose its path.");
  }
  return command;
}

const ignore: (line: string) => void = () => undefined;

/** Show the output of a subcommand, run with the language server's settings. */
function showReport(server: Server, args: Command, said = ignore): void {
  const command = commandOf(server);
  if (command !== undefined) {
    const pty = new Report([command, ...args], asEnvironment(server.settings()), said);
    vscode.window.createTerminal({ name: `midfill ${args[0]}`, pty }).show(true);
  }
}

/** A terminal without a shell: it shows one command's output with colours, and stays open until it is closed. */
class Report implements vscode.Pseudoterminal {
  private readonly written = new vscode.EventEmitter<string>();
  readonly onDidWrite = this.written.event;
  private readonly closing = new AbortController();
  private readonly command: Command;
  private readonly environment: Record<string, string>;
  private readonly said: (line: string) => void;

  constructor(command: Command, environment: Record<string, string>, said: (line: string) => void) {
    this.command = command;
    this.environment = environment;
    this.said = said;
  }

  open(size: vscode.TerminalDimensions | undefined): void {
    const onLine = (line: string): void => {
      this.written.fire(`${line}\r\n`);
      this.said(line);
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
