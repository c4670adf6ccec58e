// Computes the text of the status bar, as a pure function.

import type { CoreStatus, Usage } from "./messages.ts";

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
  /** Whether the user has switched midfill off here. */
  switchedOff: boolean;
  /** Why the active editor's document gets no suggestions. */
  exclusion?: string | undefined;
  /** Of the active editor. */
  language?: string | undefined;
  languageOff: boolean;
  editorShowsSuggestions: boolean;
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
      return { icon: "loading~spin", label: "midfill: installing", lines: [phase.step] };
    case "starting":
      return { icon: "loading~spin", label: "midfill: starting", lines: ["The language server is starting."] };
    case "failed":
      return { icon: "error", label: "midfill: failed", lines: [phase.reason], severity: "error" };
    case "running":
      return describeRunning(known);
  }
}

function describeRunning(known: Known): Description {
  if (known.switchedOff) {
    return { icon: "circle-slash", label: "midfill: off", lines: ["Switched off in this workspace."] };
  }
  if (known.languageOff) {
    return { icon: "circle-slash", label: "midfill: off", lines: [`Switched off for ${known.language ?? ""}.`] };
  }
  if (!known.editorShowsSuggestions) {
    const hint = "The editor shows no inline suggestions: `editor.inlineSuggest.enabled` is off.";
    return { icon: "circle-slash", label: "midfill: off", lines: [hint] };
  }
  if (known.exclusion !== undefined && known.core?.state !== "failed") {
    return { icon: "eye-closed", label: "midfill: excluded", lines: [`No suggestions in this file: ${known.exclusion}`] };
  }
  return describeCore(known.core, known.usage);
}

const STARTING: Description = {
  icon: "loading~spin",
  label: "midfill: starting",
  lines: ["The inference core is starting."],
};

function describeCore(core: CoreStatus | undefined, usage: Usage | undefined): Description {
  switch (core?.state) {
    case "loading": {
      const percent = core.progress === null ? "" : ` ${Math.round(core.progress * 100)} %`;
      return { icon: "loading~spin", label: `midfill: loading${percent}`, lines: [`Loading ${core.model}.`] };
    }
    case "unloaded":
      return { icon: "debug-pause", label: "midfill: idle", lines: ["The model is unloaded. It loads when you type."] };
    case "ready":
      return {
        icon: "sparkle",
        label: usage ? `midfill ${cost(usage)}` : "midfill",
        lines: [`${core.model} on ${core.device}`, ...(usage ? [explain(usage)] : []), core.message].filter(Boolean),
      };
    case "failed":
      return { icon: "error", label: "midfill: failed", lines: [core.message], severity: "error" };
    case "stopped": // without a message, another core is about to start
      return core.message === "" ? STARTING : { icon: "debug-stop", label: "midfill: stopped", lines: [core.message] };
    case "starting":
    case undefined:
      return STARTING;
  }
}

function cost(usage: Usage): string {
  return `${usage.ms < 10 ? usage.ms.toFixed(1) : Math.round(usage.ms)} ms ${usage.heat}`;
}

function explain(usage: Usage): string {
  if (usage.source === "typed") {
    return "Last suggestion: the rest of the previous one, which you are typing.";
  }
  const { recomputed_tokens: recomputed, prompt_tokens: prompt } = usage.usage;
  return `Last suggestion: ${cost(usage)}, ${recomputed} of ${prompt} tokens recomputed.`;
}
