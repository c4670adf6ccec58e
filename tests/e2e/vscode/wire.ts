// What one window and its language servers have said to each other, as `midfill-tapped.mjs` wrote it down.

import { readdirSync, readFileSync } from "node:fs";
import * as path from "node:path";

interface Place {
  line: number;
  character: number;
}

export interface Item {
  insertText: string;
  range: { start: Place; end: Place };
}

/** A request for suggestions, and its answer. */
export interface Exchange {
  position: Place;
  triggerKind: number;
  /** The entry of the popup that was selected. */
  selected: { text: string } | undefined;
  items: Item[];
}

/** Of LSP's messages, what the tests look at. */
interface Message {
  id?: number | string;
  method?: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- of as many shapes as there are methods
  params?: any;
  result?: { items?: Item[] } | null;
  pid?: number;
}

interface Entry {
  at: number;
  from: "client" | "server" | "tap";
  message: Message;
}

export class Wire {
  private readonly folder: string;
  private readonly project: string;

  /** Of the window in which `project` is open; `folder` holds the records of all windows. */
  constructor(folder: string, project: string) {
    this.folder = folder;
    this.project = project;
  }

  /** The process ids of the language servers, the newest last. */
  servers(): number[] {
    return this.entries().flatMap(({ message }) => message.pid ?? []);
  }

  /** The parameters of all notifications and requests of this name. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- see Message
  sent(method: string): any[] {
    return this.entries().flatMap(({ message }) => (message.method === method ? [message.params] : []));
  }

  /** What the language server knows the file to hold, lines ending as they do there. */
  text(file: string): string {
    let text = "";
    for (const { message } of this.entries()) {
      if (message.params?.textDocument?.uri !== `file://${file}`) {
        continue;
      }
      if (message.method === "textDocument/didOpen") {
        text = message.params.textDocument.text;
      } else if (message.method === "textDocument/didChange") {
        for (const change of message.params.contentChanges) {
          text = accepted(text, { insertText: change.text, range: change.range });
        }
      }
    }
    return text;
  }

  /** In the order of the answers. */
  exchanges(): Exchange[] {
    const asked = new Map<Message["id"], Message>();
    const answered: Exchange[] = [];
    for (const { from, message } of this.entries()) {
      if (message.method === "textDocument/inlineCompletion") {
        asked.set(message.id, message);
      } else if (from === "server" && message.method === undefined && asked.has(message.id)) {
        const { position, context } = asked.get(message.id)!.params;
        const items = message.result?.items ?? [];
        answered.push({ position, triggerKind: context.triggerKind, selected: context.selectedCompletionInfo, items });
      }
    }
    return answered;
  }

  private entries(): Entry[] {
    const records = readdirSync(this.folder).map((file) => readFileSync(path.join(this.folder, file), "utf8"));
    const ours = records.filter((text) => text.includes(`"file://${this.project}"`));
    const lines = ours.flatMap((text) => text.split("\n").filter((line) => line !== "" && line.endsWith("}")));
    return lines.map((line) => JSON.parse(line) as Entry).sort((one, other) => one.at - other.at);
  }
}

/** The text with the item accepted; columns count UTF-16 units, as JavaScript's do. */
export function accepted(text: string, { insertText, range }: Item): string {
  const lines = text.split("\n");
  const offset = ({ line, character }: Place): number =>
    lines.slice(0, line).reduce((sum, before) => sum + before.length + 1, 0) + character;
  return text.slice(0, offset(range.start)) + insertText + text.slice(offset(range.end));
}
