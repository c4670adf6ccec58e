import assert from "node:assert/strict";
import { test } from "node:test";

import type { CoreState, CoreStatus, Reason, Usage } from "../src/messages.ts";
import { view, type Known } from "../src/status.ts";

function core(state: CoreState, more: Partial<CoreStatus> = {}): CoreStatus {
  return { state, message: "", model: "bundled", device: "cpu", progress: null, reason: null, ...more };
}

function reason(kind: string, text: string, lasts = true): Reason {
  return { kind, text, explanation: `In full: ${text}.`, actions: [], lasts };
}

function usage(more: Partial<Usage> = {}): Usage {
  return {
    textDocument: { uri: "file:///a.py" },
    version: 1,
    position: { line: 0, character: 0 },
    isPrefetch: false,
    source: "core",
    ms: 12.4,
    cacheOutcome: "hit",
    usage: { prompt_tokens: 300, recomputed_tokens: 2 },
    ...more,
  };
}

const RUNNING: Known = { phase: { name: "running" } };

function text(known: Partial<Known>): string {
  return view({ ...RUNNING, ...known }).text;
}

test("before the server runs, the item tells what the extension does", () => {
  assert.equal(text({ phase: { name: "off" } }), "$(circle-slash) midfill: off");
  assert.equal(text({ phase: { name: "missing" } }), "$(warning) midfill: not installed");
  for (const name of ["looking", "starting"] as const) {
    assert.equal(text({ phase: { name } }), "$(loading~spin) midfill: starting");
  }
  assert.match(view({ ...RUNNING, phase: { name: "installing", step: "Collecting numpy" } }).tooltip, /Collecting numpy/);
});

test("a failure is marked, and its reason is in the tooltip", () => {
  const failed = view({ ...RUNNING, phase: { name: "failed", reason: "no such file" } });
  assert.equal(failed.severity, "error");
  assert.match(failed.tooltip, /no such file/);
});

test("the item says that midfill is ready, the same at each key, and the tooltip what the last suggestion cost", () => {
  assert.equal(text({ core: core("ready") }), "$(check) midfill");
  assert.equal(text({ core: core("ready"), usage: usage() }), "$(check) midfill");
  assert.equal(text({ core: core("ready"), usage: usage({ ms: 3.46, cacheOutcome: "miss" }) }), "$(check) midfill");
  const { tooltip, severity } = view({ ...RUNNING, core: core("ready"), usage: usage() });
  assert.match(tooltip, /Ready\.\n\nLast suggestion: 12 ms\. The model read 2 of the 300 tokens/);
  const first = usage({ usage: { prompt_tokens: 300, recomputed_tokens: 300 } });
  assert.match(view({ ...RUNNING, core: core("ready"), usage: first }).tooltip, /The model read the 300 tokens around the cursor\.\n/);
  assert.doesNotMatch(tooltip, /hit|partial|miss|resident/);
  assert.equal(severity, "normal");
  const typed = view({ ...RUNNING, core: core("ready"), usage: usage({ source: "typed", ms: 0 }) });
  assert.match(typed.tooltip, /which you are typing/);
});

test("a reason that lasts is shown in the server's words, with the whole of it in the tooltip", () => {
  const icons = { loading: "loading~spin", excluded: "eye-closed", failed: "error", new: "info" };
  for (const [kind, icon] of Object.entries(icons)) {
    const shown = view({ ...RUNNING, core: core("ready"), usage: usage(), reason: reason(kind, "as it is") });
    assert.equal(shown.text, `$(${icon}) midfill: as it is`);
    assert.match(shown.tooltip, /In full: as it is\\\./);
    assert.equal(shown.severity, kind === "failed" ? "error" : "normal");
  }
});

test("a reason of the last request alone leaves the item as it is, and stands in the tooltip", () => {
  const shown = view({ ...RUNNING, core: core("ready"), usage: usage(), reason: reason("unlikely", "unlikely", false) });
  assert.equal(shown.text, "$(check) midfill");
  assert.match(shown.tooltip, /In full: unlikely\\\./);
});
