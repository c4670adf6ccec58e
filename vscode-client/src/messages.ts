// The messages that midfill adds to LSP, as docs/language-server.md describes them.

export const STATUS = "midfill/status";
export const USAGE = "midfill/usage";
export const RESYNC = "midfill/resync";
export const REASON = "midfill/reason";
export const REFRESH = "midfill/refresh";
export const DID_SWITCH = "midfill/didSwitch";
export const DID_MOVE_CURSOR = "midfill/didMoveCursor";
export const INLINE_EDIT = "textDocument/copilotInlineEdit";
export const DID_SHOW_EDIT = "textDocument/didShowInlineEdit";
export const ACCEPTED = "midfill.accepted";
export const EDIT_ACCEPTED = "midfill.nextEditAccepted";
export const EDIT_REFUSED = "midfill.nextEditRefused";
export const DID_FOCUS = "textDocument/didFocus";

export type CoreState = "starting" | "unloaded" | "loading" | "ready" | "failed" | "stopped";

export interface CoreStatus {
  state: CoreState;
  message: string;
  model: string;
  device: string;
  /** From 0 to 1 while the model loads; null if unknown. */
  progress: number | null;
  /** Why the core cannot answer now. */
  reason: Reason | null;
}

/** A command of the server. */
export interface Action {
  title: string;
  command: string;
  arguments: (string | number)[];
  /** What it means. */
  detail: string;
}

/** Why a document gets no suggestions, in the server's words. */
export interface Reason {
  kind: string;
  /** A few words, for the status bar. */
  text: string;
  /** Sentences of plain text. */
  explanation: string;
  actions: Action[];
  /** Whether further requests meet it too. */
  lasts: boolean;
}

/** What switches suggestions off in the editor itself. */
export type EditorSwitch = "workspace" | "setting" | "hidden";

export interface Usage {
  textDocument: { uri: string };
  version: number;
  position: { line: number; character: number };
  /** Whether it was a prefetch. */
  isPrefetch: boolean;
  source: "core" | "typed";
  ms: number;
  cacheOutcome: "hit" | "partial" | "miss";
  usage: { prompt_tokens: number; recomputed_tokens: number };
}

export interface Resync {
  textDocument: { uri: string };
  reason: string;
}

export interface ReasonChange {
  textDocument: { uri: string };
  /** Null if the document gets suggestions. */
  reason: Reason | null;
}

export interface Refresh {
  textDocument: { uri: string };
  /** Whether the user asks for it. */
  invoked: boolean;
}

/** One of the cores that `midfill.listCores` returns. */
export interface CoreDescription {
  model: string;
  state: string;
  detail: string;
  /** Null where it runs on another machine, or not at all. */
  pid: number | null;
  /** Its memory in one line; empty where it does not say. */
  summary: string;
}

/** One of the models that `midfill.listModels` returns. */
export interface ModelDescription {
  /** The value for the setting `model`. */
  name: string;
  /** The program that has it. */
  source: string;
  family: string;
  sizeBytes: number;
  quantization?: string;
  /** Why midfill cannot run it; empty where it can. */
  problem: string;
  /** The engine that runs it in place of midfill's own. */
  runsWith?: string;
  /** False for one to download. */
  here?: boolean;
  /** Of one to download. */
  licence?: string;
}

/** What `midfill.downloadModel` returns: one of these. */
export interface Download {
  path?: string;
  cancelled?: boolean;
  /** The quantizations to choose from. */
  choices?: { name: string; sizeBytes: number }[];
}
