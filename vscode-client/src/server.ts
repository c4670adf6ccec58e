// Manages this window's language server: finds, starts, stops and configures it, one step at a time.

import { homedir } from "node:os";
import * as path from "node:path";

import * as vscode from "vscode";

import { Client, type Listener } from "./client.ts";
import * as config from "./config.ts";
import { commandOfClone, findCommand } from "./discovery.ts";
import type { CoreStatus, Reason, Usage } from "./messages.ts";
import { isUntrusted, workspaceEnvironments } from "./python.ts";
import type { CoreTokens } from "./secrets.ts";
import type { ServerSettings } from "./settings.ts";
import type { Phase } from "./status.ts";
import type { Switch } from "./switch.ts";
import { within } from "./timeouts.ts";

/** Deadlines for disks that may be on a network, and for VS Code's secret storage, which may ask the user. */
const SEARCH_MS = 15_000;
const SECRET_MS = 20_000;

export interface Places {
  /** The environment that the extension installs into. */
  environment: string;
  /** The file in which a build has recorded its clone's command. */
  clone: string;
}

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

  private readonly channel: vscode.LogOutputChannel;
  private readonly tokens: CoreTokens;
  private readonly onOff: Switch;
  private readonly places: Places;

  constructor(channel: vscode.LogOutputChannel, tokens: CoreTokens, onOff: Switch, places: Places) {
    this.channel = channel;
    this.tokens = tokens;
    this.onOff = onOff;
    this.places = places;
  }

  /**
   * Apply the settings: stop the server if midfill is off, otherwise find the command again and start the server.
   *
   * Every part of a start has a deadline: what fails or hangs ends in the phase "failed".
   */
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

  /** Restart if another command is found now than the one in use: the user may have chosen another interpreter. */
  lookAgain(): Promise<void> {
    return this.next(async () => {
      const isIdle = this.phase.name === "off" || this.phase.name === "installing";
      if (!isIdle && config.serverPath() === "" && (await this.find()) !== this.command) {
        await this.end();
        await this.begin();
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
      await this.loadToken().catch((error: unknown) => {
        this.channel.error(String(error)); // the server goes on with the token that it has
      });
      if ((await this.client?.changeSettings(config.defaultSettings())) === false) {
        await this.end();
        await this.begin();
      }
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
    try {
      await this.start();
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.channel.error(reason);
      this.enter({ name: "failed", reason });
    }
  }

  private async start(): Promise<void> {
    this.enter({ name: "looking" });
    this.command = await this.find();
    if (this.command === undefined) {
      this.channel.warn(config.serverPath() === "" ? "no midfill command found" : `${config.serverPath()}: not found`);
      this.enter({ name: "missing" });
      return;
    }
    this.channel.info(`starting ${this.command} lsp`);
    this.enter({ name: "starting" });
    await this.loadToken();
    const client = new Client(this.command, this.settings, this.isOn, this.channel, this.listener());
    try {
      await client.start();
      this.client = client;
      this.changed.fire();
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new Error(`\`${this.command} lsp\` did not start: ${reason}`, { cause: error });
    }
  }

  private async end(): Promise<void> {
    const { client } = this;
    this.client = this.core = this.usage = undefined;
    this.reasons.clear();
    await client?.stop();
  }

  private async loadToken(): Promise<void> {
    const address = config.coreAddress();
    try {
      await within(SECRET_MS, this.tokens.load(address));
    } catch (error) {
      const reason = `VS Code's secret storage does not give the token of ${address}: ${String(error)}`;
      throw new Error(`${reason}. Unlock the keyring of your system, then restart midfill.`, { cause: error });
    }
  }

  private async find(): Promise<string | undefined> {
    const serverPath = config.serverPath();
    try {
      const command = await within(SEARCH_MS, this.search(serverPath));
      return command === undefined ? undefined : path.normalize(command);
    } catch (error) {
      const remedy = serverPath === "" ? "Name the command in the setting midfill.serverPath." : `midfill.serverPath is ${serverPath}.`;
      throw new Error(`Looking for the midfill command failed: ${String(error)}. ${remedy}`, { cause: error });
    }
  }

  /** Asks the Python extension only if it is active, or if no other place has the command. */
  private async search(serverPath: string): Promise<string | undefined> {
    const clone = await commandOfClone(this.places.clone);
    const places = {
      serverPath,
      environments: [] as string[],
      clone: clone === undefined || isUntrusted(clone) ? undefined : clone,
      searchPath: process.env.PATH ?? "",
      ownEnvironment: this.places.environment,
    };
    if (serverPath === "") {
      places.environments = await workspaceEnvironments(this.channel, { activate: false });
    }
    const command = await findCommand(places, homedir());
    if (command !== undefined || serverPath !== "") {
      return command;
    }
    places.environments = await workspaceEnvironments(this.channel, { activate: true });
    return findCommand(places, homedir());
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
      suggests: () => {
        this.changed.fire();
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
        if (!usage.isPrefetch) {
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
