// What one window and its language servers have said to each other, as `midfill-tapped.mjs` wrote it down.

import { closeSync, fstatSync, openSync, readdirSync, readSync } from "node:fs";
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
  result?: { items?: Item[]; edits?: { text: string; range: Item["range"] }[] } | null;
  pid?: number;
}

interface Entry {
  at: number;
  from: "client" | "server" | "tap";
  message: Message;
}

/** One server's record, as far as it was read. */
interface Read {
  bytes: number;
  isOurs: boolean;
  entries: Entry[];
}

export class Wire {
  private readonly folder: string;
  private readonly project: string;
  private readonly records = new Map<string, Read>();
  private readonly texts = new Map<string, { entries: number; text: string }>();

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
    const all = this.entries();
    let { entries, text } = this.texts.get(file) ?? { entries: 0, text: "" };
    for (const { message } of all.slice(entries)) {
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
    this.texts.set(file, { entries: all.length, text });
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

  /** The next edit that the server offered last. */
  offered(): Item | undefined {
    const edits = this.entries().flatMap(({ message }) => message.result?.edits ?? []);
    return edits.map(({ text, range }) => ({ insertText: text, range })).at(-1);
  }

  /** All messages from this time on, shortened. */
  since(time: number): { at: number; says: string }[] {
    const later = this.entries().filter(({ at }) => at >= time);
    return later.map(({ at, from, message }) => ({ at, says: `${from} ${JSON.stringify(message).slice(0, 400)}` }));
  }

  private entries(): Entry[] {
    const records = readdirSync(this.folder).map((file) => this.record(file));
    return records.flatMap(({ isOurs, entries }) => (isOurs ? entries : [])).sort((one, other) => one.at - other.at);
  }

  /** Reads what was added since the last time. */
  private record(file: string): Read {
    const known = this.records.get(file) ?? { bytes: 0, isOurs: false, entries: [] };
    const descriptor = openSync(path.join(this.folder, file), "r");
    const added = Buffer.alloc(fstatSync(descriptor).size - known.bytes);
    readSync(descriptor, added, 0, added.length, known.bytes);
    closeSync(descriptor);
    const whole = added.subarray(0, added.lastIndexOf("\n") + 1); // the last line may still be written
    const text = whole.toString();
    known.bytes += whole.length;
    known.isOurs ||= text.includes(`"file://${this.project}"`);
    known.entries.push(...text.split("\n").slice(0, -1).map((line) => JSON.parse(line) as Entry));
    this.records.set(file, known);
    return known;
  }
}

/** The text with the item accepted; columns count UTF-16 units, as JavaScript's do. */
export function accepted(text: string, { insertText, range }: Item): string {
  const lines = text.split("\n");
  const offset = ({ line, character }: Place): number =>
    lines.slice(0, line).reduce((sum, before) => sum + before.length + 1, 0) + character;
  return text.slice(0, offset(range.start)) + insertText + text.slice(offset(range.end));
}
