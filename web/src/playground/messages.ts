// The messages of LSP, and midfill's own (docs/language-server.md), as far as the page uses them.

import type { CacheOutcome, Usage } from "../costs.ts";

/** A position of LSP: line and character from 0, in UTF-16 code units. */
export interface Place {
  line: number;
  character: number;
}

export interface Change {
  range: { start: Place; end: Place };
  text: string;
}

export interface InlineCompletions {
  items: { insertText: string; range: { start: Place; end: Place } }[];
}

/** A model of the command `midfill.listModels`. */
export interface Model {
  name: string;
  source: string;
  family: string;
  sizeBytes: number;
  quantization: string;
  problem: string;
  runsWith: string;
  here: boolean;
}

/** A core of the command `midfill.listCores`. */
export interface Core {
  model: string;
  state: string;
}

interface InDocument {
  textDocument: { uri: string };
}

export interface Cost {
  isPrefetch: boolean;
  source: "core" | "typed";
  cacheOutcome: CacheOutcome;
  ms: number;
  usage: Usage;
}

export interface Status {
  state: string;
  model: string; // empty without a core
  device: string;
  message: string;
  progress: number | null;
}

/** What the language server says by itself, by its method. */
export interface Notifications {
  "midfill/status": Status;
  "midfill/usage": Cost;
  "midfill/reason": InDocument & { reason: { explanation: string; lasts: boolean } | null };
  "midfill/refresh": InDocument & { invoked: boolean };
  "midfill/resync": InDocument;
  "window/showMessage": { message: string };
}
