// Computes the text of the status bar, as a pure function; the text tells the state, and the tooltip what a suggestion cost.

import type { CoreStatus, Reason, Usage } from "./messages.ts";

/** The extension's phase; while the server runs, the core's state has more detail. */
export type Phase =
  | { name: "off" }
  | { name: "looking" }
  | { name: "missing" }
  | { name: "installing"; step: string }
  | { name: "starting" }
  | { name: "running" }
  | { name: "failed"; reason: string };

export interface Known {
  phase: Phase;
  core?: CoreStatus | undefined;
  /** Of the last request in the active editor's window. */
  usage?: Usage | undefined;
  /** Why the active editor's document gets no suggestions. */
  reason?: Reason | undefined;
}

export interface View {
  text: string;
  /** In Markdown. */
  tooltip: string;
  severity: "normal" | "warning" | "error";
}

export function view(known: Known): View {
  const { icon, label, lines, severity = "normal" } = describe(known);
  return { text: `$(${icon}) ${label}`, tooltip: ["**midfill**", ...lines].join("\n\n"), severity };
}

interface Description {
  icon: string;
  label: string;
  lines: string[];
  severity?: View["severity"];
}

function describe(known: Known): Description {
  const { phase } = known;
  switch (phase.name) {
    case "off":
      return { icon: "circle-slash", label: "midfill: off", lines: ["Switched off in the settings."] };
    case "looking":
      return { icon: "loading~spin", label: "midfill: starting", lines: ["Looking for the `midfill` command."] };
    case "missing":
      return {
        icon: "warning",
        label: "midfill: not installed",
        lines: ["The `midfill` command was not found. Click to install it or to choose its path."],
        severity: "warning",
      };
    case "installing":
      return { icon: "loading~spin", label: "midfill: installing", lines: [plain(phase.step)] };
    case "starting":
      return { icon: "loading~spin", label: "midfill: starting", lines: ["The language server is starting."] };
    case "failed":
      return { icon: "error", label: "midfill: failed", lines: [plain(phase.reason)], severity: "error" };
    case "running":
      return describeRunning(known);
  }
}

/** By the kinds of reasons; the others concern one request, and leave the item as it is. */
const ICONS: Record<string, string> = {
  off: "circle-slash",
  manual: "circle-outline",
  snoozed: "bell-slash",
  excluded: "eye-closed",
  long: "circle-slash",
  lost: "warning",
  starting: "loading~spin",
  loading: "loading~spin",
  reading: "loading~spin",
  unloaded: "debug-pause",
  stopped: "debug-stop",
  failed: "error",
};

function describeRunning({ core, usage, reason }: Known): Description {
  if (core === undefined) {
    return { icon: "loading~spin", label: "midfill: starting", lines: ["The language server is starting."] };
  }
  if (reason === undefined || !(reason.lasts || reason.kind === "unloaded")) {
    const why = reason === undefined ? "Ready." : plain(reason.explanation);
    const lines = [why, ...(usage ? [explain(usage)] : []), plain(`Model: ${core.model}, on ${core.device}`), plain(core.message)];
    return { icon: "check", label: "midfill", lines: lines.filter(Boolean) };
  }
  const severity = reason.kind === "failed" ? "error" : "normal";
  return { icon: ICONS[reason.kind] ?? "info", label: `midfill: ${reason.text}`, lines: [plain(reason.explanation)], severity };
}

/** Plain text in Markdown. */
function plain(text: string): string {
  return text.replaceAll(/[\\`*_{}[\]()#+.!~<>|-]/g, "\\$&");
}

function explain({ source, ms, usage }: Usage): string {
  if (source === "typed") {
    return "Last suggestion: the rest of the previous one, which you are typing.";
  }
  const { recomputed_tokens: read, prompt_tokens: of } = usage;
  const time = ms < 10 ? ms.toFixed(1) : String(Math.round(ms));
  const work = read < of ? `${read} of the ${of} tokens around the cursor, and remembered the others` : `the ${of} tokens around the cursor`;
  return `Last suggestion: ${time} ms. The model read ${work}.`;
}
