// The messages between the page and its session: those of midfill/play/session.py. Fields that have their default are left out.

import type { CacheOutcome, Usage } from "../costs.ts";

export interface Place {
  line: number;
  character: number;
}

export interface Replacement {
  start: Place;
  end: Place;
  text: string;
}

export type FromPage =
  | { type: "Open"; name: string; language: string; text: string }
  | { type: "Edit"; name: string; version: number; changes: Replacement[] }
  | { type: "Suggest"; id: number; name: string; place: Place; invoked: boolean }
  | { type: "Move"; name: string; place: Place }
  | { type: "ListModels" }
  | { type: "UseModel"; model: string };

export interface Model {
  name: string;
  summary: string;
  problem?: string;
  running?: boolean;
}

export interface Cost {
  type: "Cost";
  is_prefetch: boolean;
  source: "core" | "typed";
  cache_outcome: CacheOutcome;
  milliseconds: number;
  usage: Usage;
}

export interface Status {
  type: "Status";
  state: string;
  model: string;
  device?: string;
  message?: string;
  progress?: number;
}

export type ToPage =
  | { type: "Suggestions"; id: number; items: [text: string, replaced: number][] }
  | { type: "Excluded"; name: string; reason: string | null }
  | { type: "Models"; models: Model[] }
  | { type: "Failed"; message: string; id?: number }
  | Cost
  | Status;
