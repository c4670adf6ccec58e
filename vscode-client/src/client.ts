// One run of the language server: the client that talks to it, and midfill's own messages.

import { once } from "node:events";
import { homedir } from "node:os";
import { createInterface } from "node:readline";

import * as vscode from "vscode";
import {
  CloseAction,
  DidChangeConfigurationNotification,
  DidCloseTextDocumentNotification,
  DidOpenTextDocumentNotification,
  ErrorAction,
  ExecuteCommandRequest,
  LanguageClient,
  RevealOutputChannelOn,
  State,
  type ClientCapabilities,
  type ErrorHandler,
  type Range,
  type StaticFeature,
} from "vscode-languageclient/node";

import { AcceptedText, type Span } from "./acceptedText.ts";
import { ACCEPTED, DID_FOCUS, DID_MOVE_CURSOR, DID_SHOW_EDIT, DID_SWITCH, EDIT_ACCEPTED, EDIT_REFUSED, INLINE_EDIT } from "./messages.ts";
import { REASON, REFRESH, RESYNC, STATUS, USAGE } from "./messages.ts";
import type { CoreStatus, EditorSwitch, Reason, ReasonChange, Refresh, Resync, Usage } from "./messages.ts";
import { changedSettings, type ServerSettings } from "./settings.ts";
import { within } from "./timeouts.ts";

/** The documents that users write; `exclusion.py` of the server has the same of VS Code's. */
const SELECTOR = ["file", "untitled", "vscode-notebook-cell", "vscode-interactive-input", "vscode-scm", "vscode-vfs", "vsls"].map(
  (scheme) => ({ scheme }),
);

/** Deadline for the server's answer to `initialize`. */
const START_TIMEOUT_MS = 60_000;

const STOP_TIMEOUT_MS = 5000;
const LAST_WORDS_MS = 1000;

/** The client restarts a server that dies, unless it died this many times within this window. */
const MOST_RESTARTS = 5;
const RESTART_WINDOW_MS = 3 * 60_000;

/** The context of the key that adds imports. */
const HAS_ACCEPTED = "midfill.accepted";

export interface Listener {
  /** The server is running, or has exited and is restarting. */
  running: (isRunning: boolean) => void;
  /** The server has exited too often; the client no longer restarts it. */
  gaveUp: (reason: string) => void;
  core: (status: CoreStatus) => void;
  usage: (usage: Usage) => void;
  /** A suggestion is about to be shown. */
  suggests: () => void;
  /** A document was closed and opened again for the server, which forgot what the client had said of it. */
  resent: () => void;
  /** Why a document gets no suggestions; null if it does. */
  reason: (uri: vscode.Uri, reason: Reason | null) => void;
}

/** An edit that the server offers, and its commands. */
export interface NextEdit {
  text: string;
  range: vscode.Range;
  /** What of it to show where. */
  parts: { text: string; range: vscode.Range }[];
  accepted: string;
  refused: string;
  arguments: readonly unknown[];
}

/** How the server says it. */
interface InlineEdits {
  edits: { text: string; range: Range; command: { arguments: unknown[] }; parts: { text: string; range: Range }[] }[];
}

export class Client {
  private readonly client: LanguageClient;
  private readonly output: ServerOutput;
  private initial: ServerSettings = {};
  private cameUp = false;
  /** The next request is none that the user invoked, though VS Code says so. */
  private automatic = false;
  /** The document and place of the last request for suggestions, its version then, and whether it got one or the popup was open. */
  private suggested: { document: vscode.TextDocument; place: vscode.Position; version: number; isBusy: boolean } | undefined;
  private readonly acceptedText = new AcceptedText();
  private readonly changes: vscode.Disposable;
  private stopped = false;
  private hasGivenUp = false;

  /** Reads `settings` at every start of the server; where `isOn` returns false, the client sends no request. */
  constructor(
    command: string,
    private readonly settings: () => ServerSettings,
    private readonly isOn: (document: vscode.TextDocument) => boolean,
    channel: vscode.LogOutputChannel,
    listener: Listener,
  ) {
    this.output = new ServerOutput(channel);
    // Not the workspace: Python might import the user's files instead of the server's own modules.
    const server = { command, args: ["lsp"], options: { cwd: homedir() } };
    this.client = new QuietClient("midfill", "midfill", server, {
      documentSelector: SELECTOR,
      outputChannel: channel,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      initializationOptions: () => (this.initial = settings()),
      initializationFailedHandler: () => false,
      middleware: {
        provideInlineCompletionItems: async (document, position, context, token, next) => {
          const found = isOn(document) ? await next(document, position, this.asItArose(context), token) : [];
          if (token.isCancellationRequested) {
            return found; // VS Code shows none of it, and has asked anew
          }
          const [first] = Array.isArray(found) ? found : (found?.items ?? []);
          const isBusy = first !== undefined || context.selectedCompletionInfo !== undefined;
          this.suggested = { document, place: position, version: document.version, isBusy };
          if (isBusy) {
            listener.suggests();
          }
          const text = typeof first?.insertText === "string" ? first.insertText : undefined;
          this.acceptedText.isSuggested(document.uri.toString(), document.offsetAt(first?.range?.start ?? position), text);
          return found;
        },
        executeCommand: (command, args: unknown[], next): unknown => {
          if (command === ACCEPTED) {
            this.didAcceptAll();
          }
          return next(command, args);
        },
      },
      errorHandler: restartingHandler(
        () => this.cameUp,
        () => {
          giveUp("The language server has exited too often.");
        },
      ),
      stdioOptions: { stdout: () => undefined /* speaks LSP */, stderr: this.output.follow },
    });
    this.client.registerFeature(announcing({ midfill: true }));
    this.changes = vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
      const textOf = ({ start, end }: Span): string => document.getText(rangeOf(document, { start, end }));
      if (this.acceptedText.changed(document.uri.toString(), contentChanges, textOf)) {
        void vscode.commands.executeCommand("setContext", HAS_ACCEPTED, true);
      }
    });
    // The library tells of the states that follow, too: they must not hide why there is no server.
    const giveUp = (why: string): void => {
      this.hasGivenUp = true;
      listener.gaveUp(`${why} ${this.output.lastLine}`);
    };
    this.client.onDidChangeState(({ newState }) => {
      if (this.stopped || this.hasGivenUp) {
        return;
      }
      if (newState === State.StartFailed && this.cameUp) {
        giveUp("The language server did not start again.");
      } else {
        listener.running(newState === State.Running);
      }
    });
    this.client.onNotification(STATUS, listener.core);
    this.client.onNotification(USAGE, listener.usage);
    this.client.onNotification(REASON, ({ textDocument, reason }: ReasonChange) => {
      listener.reason(this.client.protocol2CodeConverter.asUri(textDocument.uri), reason);
    });
    this.client.onNotification(REFRESH, ({ textDocument, invoked }: Refresh) => {
      this.requestAgain(textDocument.uri, invoked);
    });
    this.client.onNotification(RESYNC, ({ textDocument, reason }: Resync) => {
      channel.warn(`sending ${textDocument.uri} again: ${reason}`);
      void this.sendAgain(textDocument.uri).then(listener.resent);
    });
  }

  /** Start the server; rejects with its last log line if it does not start. */
  async start(): Promise<void> {
    try {
      await within(START_TIMEOUT_MS, this.client.start());
      this.cameUp = true;
      this.requestForTyped();
    } catch (error) {
      await this.stop();
      await this.output.end();
      throw this.output.lastLine === "" ? error : new Error(this.output.lastLine, { cause: error });
    }
  }

  /** Stop the server in any state; its events are no longer reported. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.changes.dispose();
    const { serverProcess } = this.client;
    try {
      await within(STOP_TIMEOUT_MS, this.client.stop());
    } catch {
      serverProcess?.kill(); // it never started, or does not answer
    }
  }

  /** Send changed settings to the server; false if only one that is started anew can take them. */
  async changeSettings(defaults: ServerSettings): Promise<boolean> {
    const settings = changedSettings(this.initial, this.settings(), { ...defaults, coreToken: "" });
    if (settings !== undefined) {
      await this.notify(DidChangeConfigurationNotification.method, { settings });
    }
    return settings !== undefined;
  }

  /** Run a command of the server; rejects if the command is unknown or fails. */
  async execute(command: string, args: readonly unknown[] = []): Promise<unknown> {
    const offered = this.client.initializeResult?.capabilities.executeCommandProvider?.commands ?? [];
    if (!offered.includes(command)) {
      throw new Error(`the language server has no command ${command}; it may be older than the extension`);
    }
    return this.client.sendRequest(ExecuteCommandRequest.type, { command, ...(args.length > 0 && { arguments: [...args] }) });
  }

  async moveCursor(document: vscode.TextDocument, position: vscode.Position): Promise<void> {
    if (this.follows(document)) {
      const { code2ProtocolConverter: converter } = this.client;
      await this.notify(DID_MOVE_CURSOR, converter.asTextDocumentPositionParams(document, position));
    }
  }

  async focus(document: vscode.TextDocument): Promise<void> {
    if (this.follows(document)) {
      const textDocument = this.client.code2ProtocolConverter.asTextDocumentIdentifier(document);
      await this.notify(DID_FOCUS, { textDocument });
    }
  }

  /** The next edit that the server offers; undefined if it offers none, or ends before it answers. */
  async nextEdit(document: vscode.TextDocument, place: vscode.Position): Promise<NextEdit | undefined> {
    const offered = this.client.initializeResult?.capabilities.executeCommandProvider?.commands ?? [];
    if (this.client.state !== State.Running || !this.follows(document) || !offered.includes(EDIT_ACCEPTED)) {
      return undefined;
    }
    const { code2ProtocolConverter: converter, protocol2CodeConverter: back } = this.client;
    const { textDocument, position } = converter.asTextDocumentPositionParams(document, place);
    const params = { textDocument: { ...textDocument, version: document.version }, position, context: { triggerKind: 2 } };
    const edit = (await this.client.sendRequest<InlineEdits>(INLINE_EDIT, params).catch(() => undefined))?.edits[0];
    return edit && {
      text: edit.text,
      range: back.asRange(edit.range),
      parts: edit.parts.map(({ text, range }) => ({ text, range: back.asRange(range) })),
      accepted: EDIT_ACCEPTED,
      refused: EDIT_REFUSED,
      arguments: edit.command.arguments,
    };
  }

  async didShowNextEdit(edit: NextEdit): Promise<void> {
    await this.notify(DID_SHOW_EDIT, { item: { command: { arguments: edit.arguments } } });
  }

  /** Whether the document's present text has a suggestion, which may be shown as ghost text, or an open popup. */
  isBusyIn(document: vscode.TextDocument): boolean {
    const { suggested } = this;
    return suggested?.document === document && suggested.version === document.version && suggested.isBusy;
  }

  async announceSwitch(document: vscode.TextDocument, off: EditorSwitch | null, rivals: string[]): Promise<void> {
    if (vscode.languages.match(SELECTOR, document) > 0) {
      const textDocument = this.client.code2ProtocolConverter.asTextDocumentIdentifier(document);
      await this.notify(DID_SWITCH, { textDocument, off, rivals });
    }
  }

  /** The text that the user accepted last, if that was in this document. */
  acceptedIn(document: vscode.TextDocument): vscode.Location | undefined {
    const span = this.acceptedText.in(document.uri.toString());
    return span && new vscode.Location(document.uri, rangeOf(document, span));
  }

  didAccept(document: vscode.TextDocument, start: vscode.Position, end: vscode.Position): void {
    this.acceptedText.accept(document.uri.toString(), { start: document.offsetAt(start), end: document.offsetAt(end) });
    void vscode.commands.executeCommand("setContext", HAS_ACCEPTED, true);
  }

  private didAcceptAll(): void {
    const editor = vscode.window.activeTextEditor;
    if (editor !== undefined && editor.document === this.suggested?.document) {
      this.didAccept(editor.document, this.suggested.place, editor.selection.active);
    }
  }

  /** Request a suggestion for text that was typed before the server ran: VS Code would not before the next key. */
  private requestForTyped(): void {
    const document = vscode.window.activeTextEditor?.document;
    // Not by isDirty: an editor that saves by itself may have saved what was typed.
    if (document !== undefined && document.version > 1) {
      this.requestAgain(this.client.code2ProtocolConverter.asUri(document.uri), false);
    }
  }

  /**
   * VS Code answers an automatic request for an unchanged text and cursor by itself, so each of these is explicit to it;
   * the server hears which of them the user invoked.
   */
  private requestAgain(uri: string, invoked: boolean): void {
    const document = vscode.window.activeTextEditor?.document;
    if (document === undefined || this.client.code2ProtocolConverter.asUri(document.uri) !== uri) {
      return;
    }
    if (invoked || vscode.workspace.getConfiguration("editor.inlineSuggest", document).get<boolean>("enabled", true)) {
      this.automatic = !invoked;
      // VS Code may not ask at all, for instance where the cursor is in no document of ours: the next request is not this one.
      void vscode.commands.executeCommand("editor.action.inlineSuggest.trigger", { explicit: true }).then(() => {
        this.automatic = false;
      });
    }
  }

  private asItArose(context: vscode.InlineCompletionContext): vscode.InlineCompletionContext {
    const automatic = this.automatic;
    this.automatic = false;
    return automatic ? { ...context, triggerKind: vscode.InlineCompletionTriggerKind.Automatic } : context;
  }

  private async sendAgain(uri: string): Promise<void> {
    const { code2ProtocolConverter: converter } = this.client;
    const document = vscode.workspace.textDocuments.find((open) => converter.asUri(open.uri) === uri);
    if (document !== undefined) {
      await this.notify(DidCloseTextDocumentNotification.method, converter.asCloseTextDocumentParams(document));
      await this.notify(DidOpenTextDocumentNotification.method, converter.asOpenTextDocumentParams(document));
    }
  }

  private follows(document: vscode.TextDocument): boolean {
    return this.isOn(document) && vscode.languages.match(SELECTOR, document) > 0;
  }

  private async notify(method: string, params: object): Promise<void> {
    if (this.client.state === State.Running) {
      await this.client.sendNotification(method, params);
    }
  }
}

function rangeOf(document: vscode.TextDocument, { start, end }: Span): vscode.Range {
  return new vscode.Range(document.positionAt(start), document.positionAt(end));
}

/** Shows no error messages: the extension shows failures itself, and the log has them all. */
class QuietClient extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }
}

/** Copies the server's stderr to the log. */
class ServerOutput {
  lastLine = "";
  private ended: Promise<unknown> = Promise.resolve();

  constructor(private readonly channel: vscode.LogOutputChannel) {}

  readonly follow = (stderr: NodeJS.ReadableStream): void => {
    const lines = createInterface(stderr);
    this.ended = once(lines, "close");
    lines.on("line", (line) => {
      this.lastLine = line.trim() || this.lastLine;
      if (/ (ERROR|CRITICAL) /.test(line)) {
        this.channel.error(line);
      } else if (line.includes(" WARNING ")) {
        this.channel.warn(line);
      } else {
        this.channel.info(line);
      }
    });
  };

  /** Wait for the last line of a server that is exiting; it may arrive after the connection has closed. */
  async end(): Promise<void> {
    await within(LAST_WORDS_MS, this.ended).catch(() => undefined);
  }
}

function restartingHandler(cameUp: () => boolean, gaveUp: () => void): ErrorHandler {
  const ends: number[] = [];
  return {
    error: () => ({ action: ErrorAction.Continue }),
    closed: () => {
      if (!cameUp()) {
        return { action: CloseAction.DoNotRestart, handled: true };
      }
      const now = Date.now();
      ends.push(now);
      if (ends.filter((end) => now - end < RESTART_WINDOW_MS).length < MOST_RESTARTS) {
        return { action: CloseAction.Restart, handled: true };
      }
      gaveUp();
      return { action: CloseAction.DoNotRestart, handled: true };
    },
  };
}

function announcing(experimental: object): StaticFeature {
  return {
    fillClientCapabilities: (capabilities: ClientCapabilities) => {
      capabilities.experimental = { ...(capabilities.experimental as object | undefined), ...experimental };
    },
    initialize: () => undefined,
    getState: () => ({ kind: "static" }),
    clear: () => undefined,
  };
}
