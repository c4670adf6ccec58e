// Offers to install midfill, and shows the progress.

import * as vscode from "vscode";

import * as config from "./config.ts";
import { findPython, install, InstallationError, requirementsOf, type Engine } from "./installation.ts";
import { chosenInterpreters } from "./python.ts";
import type { Server } from "./server.ts";

const INSTALL = "Install";
const CHOOSE = "Choose its path…";
const NEVER = "Don't ask again";
const NEVER_KEY = "neverOfferInstallation";

export class Installer {
  private running = false;

  constructor(
    private readonly server: Server,
    private readonly channel: vscode.LogOutputChannel,
    private readonly places: { environment: string; carried: string },
    private readonly memory: vscode.Memento,
  ) {}

  /** Ask once per window, unless the user chose not to be asked again. */
  async offer(): Promise<void> {
    if (this.memory.get<boolean>(NEVER_KEY) === true) {
      return;
    }
    const where = config.serverPath() === "" ? "" : ` at ${config.serverPath()}`;
    const question =
      `midfill: found no midfill command${where}. ` +
      "Install the bundled one into an environment of its own?" +
      (config.coreAddress() === "" ? " It downloads 35 MB of Python packages." : "");
    const answer = await vscode.window.showInformationMessage(question, INSTALL, CHOOSE, NEVER);
    if (answer === INSTALL) {
      await this.install("kernel");
    } else if (answer === CHOOSE) {
      await this.choosePath();
    } else if (answer === NEVER) {
      await this.memory.update(NEVER_KEY, true);
    }
  }

  /** Ask which command to use: the bundled midfill, or one that is there. */
  async choose(): Promise<void> {
    const bundled = { label: "Install the bundled midfill", detail: "into a Python environment of the extension's own" };
    const torch = {
      label: "Install it with PyTorch",
      detail: "for NVIDIA GPUs, and for models that the CPU kernel does not run; up to several gigabytes",
    };
    const path = { label: CHOOSE, detail: "for example .venv/bin/midfill in a clone of midfill" };
    const chosen = await vscode.window.showQuickPick([bundled, torch, path], { title: "The midfill command" });
    if (chosen === path) {
      await this.choosePath();
    } else if (chosen !== undefined) {
      await this.install(chosen === torch ? "torch" : "kernel");
    }
  }

  private async choosePath(): Promise<void> {
    const [file] = (await vscode.window.showOpenDialog({ title: "The midfill command", openLabel: "Use" })) ?? [];
    if (file !== undefined) {
      await config.setServerPath(file.fsPath);
    }
  }

  /** Install midfill; without an engine if the settings name a core on another machine. */
  private async install(engine: Engine): Promise<void> {
    if (this.running) {
      return;
    }
    this.running = true;
    try {
      await this.server.stop(); // it may run from the environment that is replaced
      await vscode.window.withProgress(
        { location: vscode.ProgressLocation.Notification, title: "midfill", cancellable: true },
        (progress, token) => this.installShowing(engine, progress, token),
      );
      if (config.serverPath() !== "") {
        await config.setServerPath(""); // it named a missing command
      }
    } catch (error) {
      this.report(error);
    } finally {
      this.running = false;
    }
    await this.server.restart();
  }

  private async installShowing(
    engine: Engine,
    progress: vscode.Progress<{ message: string }>,
    token: vscode.CancellationToken,
  ): Promise<void> {
    const breaking = new AbortController();
    token.onCancellationRequested(() => {
      breaking.abort(new vscode.CancellationError());
    });
    await install({
      python: await findPython(await chosenInterpreters(this.channel, { activate: true })),
      environment: this.places.environment,
      requirements: requirementsOf({
        carried: this.places.carried,
        engine: config.coreAddress() === "" ? engine : "none",
      }),
      onStep: (step) => {
        progress.report({ message: step });
        this.server.enter({ name: "installing", step });
      },
      onLine: (line) => {
        this.channel.info(line);
      },
      signal: breaking.signal,
    });
  }

  private report(error: unknown): void {
    if (error instanceof vscode.CancellationError) {
      return;
    }
    const reason = error instanceof InstallationError ? error.message : String(error);
    this.channel.error(reason);
    const said = vscode.window.showErrorMessage(`midfill could not be installed: ${reason}`, "Show log");
    void said.then((answer) => {
      if (answer !== undefined) {
        this.channel.show();
      }
    });
  }
}
