// The language server of this page, behind a WebSocket that is kept up while `midfill play` runs.

import type { Notifications } from "./messages.ts";

const RETRY_MS = 1500;

type Handlers = { [Method in keyof Notifications]: (params: Notifications[Method]) => void };

export interface Listener extends Handlers {
  /** A new language server: it knows no documents yet. */
  opened(): void;
  closed(): void;
}

interface Message {
  id?: number;
  method?: string;
  params?: unknown;
  result?: unknown;
  error?: { message: string };
}

export class LanguageServer {
  readonly #key: string;
  readonly #listener: Listener;
  readonly #pending = new Map<number, (message: Message) => void>();
  #requests = 0;
  #settings: object = {};
  #socket: WebSocket | undefined;

  constructor(key: string, listener: Listener) {
    this.#key = key;
    this.#listener = listener;
    this.restart();
  }

  /** Begin again with another language server, and with these settings. */
  restart(settings = this.#settings): void {
    this.#settings = settings;
    if (this.#socket !== undefined) {
      this.#socket.onmessage = this.#socket.onclose = null;
      this.#socket.close();
    }
    this.#pending.clear();
    const socket = new WebSocket(`ws://${location.host}/playground/lsp`, ["midfill", `midfill.bearer.${this.#key}`]);
    socket.onopen = () => {
      void this.#initialize();
    };
    socket.onmessage = ({ data }) => {
      this.#receive(JSON.parse(String(data)) as Message);
    };
    socket.onclose = () => {
      this.#listener.closed();
      setTimeout(() => {
        if (this.#socket === socket) {
          this.restart();
        }
      }, RETRY_MS);
    };
    this.#socket = socket;
  }

  /** Send a notification; without a connection it is dropped, since the next server begins with the whole documents. */
  notify(method: string, params: object): void {
    this.#send({ method, params });
  }

  /** Send a request; its result, unless the connection ends before. */
  request<Result>(method: string, params: object): Promise<Result> {
    const id = (this.#requests += 1);
    return new Promise((resolve, reject) => {
      this.#pending.set(id, ({ result, error }) => {
        if (error === undefined) {
          resolve(result as Result);
        } else {
          reject(new Error(error.message));
        }
      });
      this.#send({ id, method, params });
    });
  }

  /** Run a command of the server; its result. */
  run<Result>(command: string): Promise<Result> {
    return this.request("workspace/executeCommand", { command });
  }

  async #initialize(): Promise<void> {
    const capabilities = { textDocument: { inlineCompletion: {} }, experimental: { midfill: true } };
    const about = { processId: null, rootUri: null, clientInfo: { name: "the playground" } };
    await this.request("initialize", { ...about, capabilities, initializationOptions: this.#settings });
    this.notify("initialized", {});
    this.#listener.opened();
  }

  #send(message: object): void {
    if (this.#socket?.readyState === WebSocket.OPEN) {
      this.#socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
    }
  }

  #receive(message: Message): void {
    const { id, method, params } = message;
    if (method !== undefined && method in this.#listener) {
      (this.#listener[method as keyof Notifications] as (params: unknown) => void)(params);
    } else if (id !== undefined) {
      this.#pending.get(id)?.(message);
      this.#pending.delete(id);
    }
  }
}
