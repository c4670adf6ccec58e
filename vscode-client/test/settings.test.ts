import assert from "node:assert/strict";
import { test } from "node:test";

import { asEnvironment, changedSettings } from "../src/settings.ts";

test("what is set now is sent", () => {
  assert.deepEqual(changedSettings({}, { maxTokens: 8 }, { maxTokens: 64 }), { maxTokens: 8 });
});

test("what the server was started with, and has been unset since, is sent as its default", () => {
  const initial = { maxTokens: 8, multiLine: false, coreToken: "secret" };
  const defaults = { maxTokens: 64, multiLine: true, model: "bundled", coreToken: "" };
  assert.deepEqual(changedSettings(initial, { multiLine: false }, defaults), {
    maxTokens: 64,
    multiLine: false,
    coreToken: "",
  });
});

test("a server that was started with a setting that the page does not have cannot be told to forget it", () => {
  assert.equal(changedSettings({ contextTokens: 8192 }, {}, { maxTokens: 64 }), undefined);
  assert.deepEqual(changedSettings({}, { contextTokens: 8192 }, { maxTokens: 64 }), { contextTokens: 8192 });
});

test("settings become variables of midfill's commands", () => {
  assert.deepEqual(asEnvironment({ maxTokens: 8, multiLine: false, disabledLanguages: ["markdown", "python"] }), {
    MIDFILL_MAX_TOKENS: "8",
    MIDFILL_MULTI_LINE: "false",
    MIDFILL_DISABLED_LANGUAGES: "markdown,python",
  });
  assert.deepEqual(asEnvironment({ contextSources: [] }), { MIDFILL_CONTEXT_SOURCES: "," });
});
