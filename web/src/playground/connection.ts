// The WebSocket to this page's session, kept up while `midfill play` runs.

import type { FromPage, ToPage } from "./messages.ts";

const RETRY_MS = 1500;

export interface Listener {
  /** A new session: it knows no documents yet. */
  opened(): void;
  closed(): void;
  received(message: ToPage): void;
}

export class Connection {
  readonly #key: string;
  readonly #listener: Listener;
  #socket: WebSocket | undefined;

  constructor(key: string, listener: Listener) {
    this.#key = key;
    this.#listener = listener;
    this.#open();
  }

  /** Send a message; without a connection it is dropped, since the next session begins with the whole documents. */
  send(message: FromPage): void {
    if (this.#socket?.readyState === WebSocket.OPEN) {
      this.#socket.send(JSON.stringify(message));
    }
  }

  #open(): void {
    const socket = new WebSocket(`ws://${location.host}/playground/session`, ["midfill", `midfill.bearer.${this.#key}`]);
    socket.onopen = () => {
      this.#listener.opened();
    };
    socket.onmessage = ({ data }) => {
      this.#listener.received(JSON.parse(String(data)) as ToPage);
    };
    socket.onclose = () => {
      this.#listener.closed();
      setTimeout(() => {
        this.#open();
      }, RETRY_MS);
    };
    this.#socket = socket;
  }
}
