// The messages that midfill adds to LSP, as `lsp_server/custom_messages.py` describes them.

export const STATUS = "midfill/status";
export const USAGE = "midfill/usage";
export const RESYNC = "midfill/resync";
export const EXCLUDED = "midfill/excluded";
export const DID_MOVE_CURSOR = "midfill/didMoveCursor";
export const DID_FOCUS = "textDocument/didFocus";

export type CoreState = "starting" | "unloaded" | "loading" | "ready" | "failed" | "stopped";

export interface CoreStatus {
  state: CoreState;
  message: string;
  model: string;
  device: string;
  /** From 0 to 1 while the model loads; null if unknown. */
  progress: number | null;
}

export interface Usage {
  textDocument: { uri: string };
  version: number;
  position: { line: number; character: number };
  /** Whether it was ahead work. */
  ahead: boolean;
  source: "core" | "typed";
  ms: number;
  heat: "hot" | "warm" | "cold";
  usage: { prompt_tokens: number; recomputed_tokens: number };
}

export interface Resync {
  textDocument: { uri: string };
  reason: string;
}

export interface Excluded {
  textDocument: { uri: string };
  /** Why the document gets no suggestions; null if it does. */
  reason: string | null;
}

/** One of the cores that `midfill.listCores` returns. */
export interface CoreDescription {
  model: string;
  state: string;
  detail: string;
  pid: number;
  memoryBytes: number;
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
}
