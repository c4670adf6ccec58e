import assert from "node:assert/strict";
import { test } from "node:test";

import { asEnvironment, changedSettings, toggled } from "../src/settings.ts";

test("what is set now is sent", () => {
  assert.deepEqual(changedSettings({}, { maxTokens: 8 }, { maxTokens: 64 }), { maxTokens: 8 });
});

test("what the server was started with, and has been unset since, is sent as its default", () => {
  const initial = { maxTokens: 8, multiLine: false, coreToken: "secret" };
  const defaults = { maxTokens: 64, multiLine: true, model: "bundled" };
  assert.deepEqual(changedSettings(initial, { multiLine: false }, defaults), {
    maxTokens: 64,
    multiLine: false,
    coreToken: "",
  });
});

test("settings become variables of midfill's commands", () => {
  assert.deepEqual(asEnvironment({ maxTokens: 8, multiLine: false, disabledLanguages: ["markdown", "python"] }), {
    MIDFILL_MAX_TOKENS: "8",
    MIDFILL_MULTI_LINE: "false",
    MIDFILL_DISABLED_LANGUAGES: "markdown,python",
  });
  assert.deepEqual(asEnvironment({ suggestIn: [] }), { MIDFILL_SUGGEST_IN: "," });
});

test("a language is switched off, and on again", () => {
  assert.deepEqual(toggled(["markdown"], "python"), ["markdown", "python"]);
  assert.deepEqual(toggled(["markdown", "python"], "markdown"), ["python"]);
});
