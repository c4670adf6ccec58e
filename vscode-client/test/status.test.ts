import assert from "node:assert/strict";
import { test } from "node:test";

import type { CoreState, CoreStatus, Usage } from "../src/messages.ts";
import { view, type Known } from "../src/status.ts";

function core(state: CoreState, more: Partial<CoreStatus> = {}): CoreStatus {
  return { state, message: "", model: "bundled", device: "cpu", progress: null, ...more };
}

function usage(more: Partial<Usage> = {}): Usage {
  return {
    textDocument: { uri: "file:///a.py" },
    version: 1,
    position: { line: 0, character: 0 },
    ahead: false,
    source: "core",
    ms: 12.4,
    heat: "hot",
    usage: { prompt_tokens: 300, recomputed_tokens: 2 },
    ...more,
  };
}

const RUNNING: Known = { phase: { name: "running" }, switchedOff: false, languageOff: false, editorShowsSuggestions: true };

function text(known: Partial<Known>): string {
  return view({ ...RUNNING, ...known }).text;
}

test("before the server runs, the item tells what the extension does", () => {
  assert.equal(text({ phase: { name: "off" } }), "$(circle-slash) midfill: off");
  assert.equal(text({ phase: { name: "missing" } }), "$(warning) midfill: not installed");
  for (const name of ["looking", "starting"] as const) {
    assert.equal(text({ phase: { name } }), "$(loading~spin) midfill: starting");
  }
  assert.match(view({ ...RUNNING, phase: { name: "installing", step: "Collecting torch" } }).tooltip, /Collecting torch/);
});

test("a failure is marked, and its reason is in the tooltip", () => {
  const failed = view({ ...RUNNING, phase: { name: "failed", reason: "no such file" } });
  assert.equal(failed.severity, "error");
  assert.match(failed.tooltip, /no such file/);
  const coreFailed = view({ ...RUNNING, core: core("failed", { message: "is not a model folder" }) });
  assert.equal(coreFailed.severity, "error");
  assert.match(coreFailed.tooltip, /is not a model folder/);
});

test("loading shows how far it is, where that is known", () => {
  assert.equal(text({ core: core("loading") }), "$(loading~spin) midfill: loading");
  assert.equal(text({ core: core("loading", { progress: 0.404 }) }), "$(loading~spin) midfill: loading 40 %");
});

test("the last suggestion's time and heat are shown", () => {
  assert.equal(text({ core: core("ready") }), "$(sparkle) midfill");
  assert.equal(text({ core: core("ready"), usage: usage() }), "$(sparkle) midfill 12 ms hot");
  assert.equal(text({ core: core("ready"), usage: usage({ ms: 3.46 }) }), "$(sparkle) midfill 3.5 ms hot");
  assert.match(view({ ...RUNNING, core: core("ready"), usage: usage() }).tooltip, /2 of 300 tokens recomputed/);
  const typed = view({ ...RUNNING, core: core("ready"), usage: usage({ source: "typed", ms: 0 }) });
  assert.match(typed.tooltip, /which you are typing/);
});

test("a core that was stopped is told, with how to start one", () => {
  assert.equal(text({ core: core("stopped") }), "$(loading~spin) midfill: starting");
  const stopped = view({ ...RUNNING, core: core("stopped", { message: "the core was stopped: restart it here" }) });
  assert.equal(stopped.text, "$(debug-stop) midfill: stopped");
  assert.match(stopped.tooltip, /restart it here/);
});

test("an excluded document is told, with the reason in full", () => {
  const excluded = view({ ...RUNNING, core: core("ready"), usage: usage(), exclusion: ".gitignore, line 3: *.py" });
  assert.equal(excluded.text, "$(eye-closed) midfill: excluded");
  assert.match(excluded.tooltip, /No suggestions in this file: \.gitignore, line 3: \*\.py/);
  assert.equal(text({ core: core("failed", { message: "no" }), exclusion: "a rule" }), "$(error) midfill: failed");
});

test("where nothing is suggested, that is said first", () => {
  assert.equal(text({ core: core("ready"), language: "markdown", languageOff: true }), "$(circle-slash) midfill: off");
  assert.equal(text({ core: core("ready"), usage: usage(), switchedOff: true }), "$(circle-slash) midfill: off");
  const hidden = view({ ...RUNNING, core: core("ready"), editorShowsSuggestions: false });
  assert.match(hidden.tooltip, /editor\.inlineSuggest\.enabled/);
});
