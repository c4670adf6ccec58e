// Manages this window's language server: finds, starts, stops and configures it, one step at a time.

import { homedir } from "node:os";
import * as path from "node:path";

import * as vscode from "vscode";

import { Client, type Listener } from "./client.ts";
import * as config from "./config.ts";
import { findCommand } from "./discovery.ts";
import type { CoreStatus, Reason, Usage } from "./messages.ts";
import { workspaceEnvironments } from "./python.ts";
import type { CoreTokens } from "./secrets.ts";
import type { ServerSettings } from "./settings.ts";
import type { Phase } from "./status.ts";
import type { Switch } from "./switch.ts";

export class Server {
  private readonly resent = new vscode.EventEmitter<void>();
  /** Fires after a document was sent again, of which the server knows nothing else now. */
  readonly onDidResend = this.resent.event;
  private readonly changed = new vscode.EventEmitter<void>();
  /** Fires after a change of any of the fields below. */
  readonly onDidChange = this.changed.event;
  phase: Phase = { name: "looking" };
  core: CoreStatus | undefined;
  usage: Usage | undefined;
  /** The `midfill` command in use. */
  command: string | undefined;
  client: Client | undefined;

  /** Why documents get no suggestions, by their URI. */
  private reasons = new Map<string, Reason>();
  private steps: Promise<void> = Promise.resolve();

  constructor(
    private readonly channel: vscode.LogOutputChannel,
    private readonly tokens: CoreTokens,
    private readonly onOff: Switch,
    private readonly ownEnvironment: string,
  ) {}

  /** Apply the settings: stop the server if midfill is off, otherwise find the command again and start the server. */
  restart(): Promise<void> {
    return this.next(async () => {
      await this.end();
      if (this.onOff.needsServer) {
        await this.begin();
      } else {
        this.enter({ name: "off" });
      }
    });
  }

  stop(): Promise<void> {
    return this.next(() => this.end());
  }

  /** Switch suggestions on or off here; the server keeps running, since it costs nothing without requests. */
  async toggle(): Promise<void> {
    await this.onOff.toggle();
    if (this.phase.name === "off") {
      await this.restart();
    } else {
      this.changed.fire();
      await vscode.commands.executeCommand("editor.action.inlineSuggest.hide");
    }
  }

  /** Whether midfill suggests in this workspace, or in the document if one is given. */
  readonly isOn = (document?: vscode.TextDocument): boolean => {
    const said = document === undefined || this.onOff.isSwitchedOff ? undefined : config.enabledFor(document);
    return said ?? this.onOff.isOn;
  };

  get isSwitchedOff(): boolean {
    return this.onOff.isSwitchedOff;
  }

  /** Why the document gets no suggestions; undefined if it does. */
  reason(document: vscode.TextDocument | undefined): Reason | undefined {
    const known = document === undefined ? undefined : this.reasons.get(document.uri.toString());
    return known ?? this.core?.reason ?? undefined;
  }

  /** Send changed settings to the running server. */
  changeSettings(): Promise<void> {
    return this.next(async () => {
      await this.tokens.load(config.coreAddress());
      await this.client?.changeSettings(config.defaultSettings());
    });
  }

  /** Show this phase, such as that of an installation. */
  enter(phase: Phase): void {
    this.phase = phase;
    this.changed.fire();
  }

  /** The settings that the user has changed, with the core's token. */
  readonly settings = (): ServerSettings => {
    const coreToken = this.tokens.get(config.coreAddress());
    return { ...config.explicitSettings(), ...(coreToken === undefined ? {} : { coreToken }) };
  };

  private async begin(): Promise<void> {
    this.enter({ name: "looking" });
    this.command = await this.find();
    if (this.command === undefined) {
      this.channel.warn(config.serverPath() === "" ? "no midfill command found" : `${config.serverPath()}: not found`);
      this.enter({ name: "missing" });
      return;
    }
    this.channel.info(`starting ${this.command} lsp`);
    this.enter({ name: "starting" });
    await this.tokens.load(config.coreAddress());
    const client = new Client(this.command, this.settings, this.isOn, this.channel, this.listener());
    try {
      await client.start();
      this.client = client;
      this.changed.fire();
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.channel.error(reason);
      this.enter({ name: "failed", reason: `\`${this.command} lsp\` did not start: ${reason}` });
    }
  }

  private async end(): Promise<void> {
    const { client } = this;
    this.client = this.core = this.usage = undefined;
    this.reasons.clear();
    await client?.stop();
  }

  private async find(): Promise<string | undefined> {
    const places = {
      serverPath: config.serverPath(),
      environments: await workspaceEnvironments(),
      searchPath: process.env.PATH ?? "",
      ownEnvironment: this.ownEnvironment,
    };
    const command = await findCommand(places, homedir());
    return command === undefined ? undefined : path.normalize(command);
  }

  private listener(): Listener {
    return {
      running: (isRunning) => {
        this.core = isRunning ? this.core : undefined;
        this.reasons.clear();
        this.enter({ name: isRunning ? "running" : "starting" });
      },
      gaveUp: (reason) => {
        this.enter({ name: "failed", reason });
      },
      resent: () => {
        this.resent.fire();
      },
      core: (status) => {
        this.core = status;
        this.changed.fire();
      },
      reason: (uri, reason) => {
        if (reason === null) {
          this.reasons.delete(uri.toString());
        } else {
          this.reasons.set(uri.toString(), reason);
          // Not where suggestions come on request: it may be one that is shown.
          if (["off", "excluded"].includes(reason.kind)) {
            void vscode.commands.executeCommand("editor.action.inlineSuggest.hide");
          }
        }
        this.changed.fire();
      },
      usage: (usage) => {
        if (!usage.ahead) {
          this.usage = usage;
          this.changed.fire();
        }
      },
    };
  }

  /** Run steps one after another: a start that is requested during a stop waits for it. */
  private next(step: () => Promise<void>): Promise<void> {
    this.steps = this.steps.then(step).catch((error: unknown) => {
      this.channel.error(String(error));
    });
    return this.steps;
  }
}
