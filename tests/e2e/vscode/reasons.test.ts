// Situations in which nothing is suggested: what the status bar and its menu say, and how it ends.

import { writeFileSync } from "node:fs";
import * as path from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { ScriptedCore } from "./scriptedCore.ts";
import { PATIENCE_MS, until, Workbench, type Window } from "./workbench.ts";

const READY = { state: "ready", context_tokens: 4096, chars_per_token: 3.0 };

process.env.MIDFILL_CORE_TOKEN = "secret"; // of the scripted core
const workbench = new Workbench();
let core: ScriptedCore;
let window: Window;

before(() => workbench.start());
after(() => workbench.stop());
beforeEach(async () => {
  core = await ScriptedCore.start();
});
afterEach(async (context) => {
  workbench.settings({});
  await window.close(context.name);
  core.stop();
});

/** Open a file in a window that uses the scripted core, its cursor at the end. */
async function open(name: string, text: string, user: Record<string, unknown> = {}): Promise<void> {
  workbench.settings({ "midfill.holdBackPercent": 20, ...user }, { "midfill.core": core.url });
  window = await workbench.openUnready(name, text);
  await window.untilStatus(/^midfill/);
  await until("a server", () => window.wire.sent("midfill/status").length > 0);
  await window.toEnd();
}

/** Wait for the status bar and its tooltip to say this, and take a picture of it. */
async function untilSaid(label: string, explanation: string): Promise<void> {
  await window.untilStatus(new RegExp(`^midfill: ${label}$`));
  await window.untilReason(explanation);
  await window.picture(label.replaceAll(/\W+/g, "-"));
}

/** Wait for the menu to name the reason, and choose this entry of it. */
async function chooseWith(reason: string, entry: string): Promise<void> {
  await window.command("midfill: Show Menu");
  const rows = window.page.locator(".quick-input-list .monaco-list-row");
  await rows.filter({ hasText: `No suggestion: ${reason}` }).waitFor({ timeout: PATIENCE_MS });
  await window.picture(`menu-${reason.replaceAll(/\W+/g, "-")}`);
  await rows.filter({ hasText: entry }).first().click();
}

test("a secret: the rule, and suggestions all the same without another key", async () => {
  await open(".env", "KEY=");
  await window.type("1");
  await untilSaid("excluded", ".env in the built-in list of secrets.");
  await chooseWith("excluded", "Suggest here all the same");
  await window.toEnd();
  await window.untilGhost("x = 1");
});

test("a file of .midfillignore", async () => {
  workbench.settings({}, { "midfill.core": core.url });
  await open("demo.py", "a = 1\n");
  writeFileSync(path.join(path.dirname(window.file), ".midfillignore"), "*.py\n");
  await until("the rule", async () => {
    await window.type("b");
    return (await window.status()) === "midfill: excluded";
  });
  await window.untilGhost("");
  await untilSaid("excluded", "*.py in .midfillignore, line 1");
});

for (const [label, explanation, user, text] of [
  ["off for python", "disabledLanguages has this language", { "midfill.disabledLanguages": ["python"] }, "a"],
  ["off", "setting midfill.enabled is off for this document", { "[python]": { "midfill.enabled": false } }, "a"],
  ["line too long", "more than 10,000 characters", {}, "a".repeat(10_001)],
] as const) {
  test(`settings and limits: ${label}, ${explanation}`, async () => {
    await open("demo.py", text, user);
    await window.type("b");
    await untilSaid(label, explanation);
  });
}

for (const [label, user] of [
  ["its own setting", { "midfill.automatic": false }],
  ["VS Code's setting", { "editor.inlineSuggest.enabled": false }],
] as const) {
  test(`suggestions only on request, by ${label}`, async () => {
    await open("demo.py", "a", user);
    await window.type("b");
    await untilSaid("on request", "only on request");
    await window.untilGhost("");
    await window.press("Alt+\\");
    await window.untilGhost("x = 1");
    await window.untilStatus(/^midfill: on request$/);
    await window.press("Tab");
    await until("the text", () => window.wire.text(window.file) === "abx = 1");
  });
}

test("a snooze, which ends on request, with a suggestion without another key", async () => {
  await open("demo.py", "a");
  await window.command("midfill: Snooze…");
  await window.page.locator(".quick-input-list .monaco-list-row", { hasText: "For 15 minutes" }).click();
  await window.untilStatus(/^midfill: snoozed until \d\d:\d\d$/);
  await window.toEnd();
  await window.type("b");
  await until("a request", () => window.newest() !== undefined);
  await window.press("Alt+\\");
  await window.untilGhost("x = 1");
  await window.type("c");
  await window.untilGhost("");
  await until("its request", () => window.newest()?.position.character === 3); // VS Code makes none once the menu is open
  await chooseWith("snoozed until", "Resume now");
  await window.untilGhost("x = 1");
});

test("an unlikely suggestion is not shown, but is on request", async () => {
  await open("demo.py", "a");
  core.do({ answer: "b", logprob: -3 });
  await window.type("c");
  await window.untilReason("is 4 %, below the setting holdBackPercent (20)");
  await window.picture("unlikely");
  await chooseWith("unlikely", "Show it");
  await window.untilGhost("b");
});

test("a model that predicts nothing", async () => {
  await open("demo.py", "a");
  core.do({ answer: "" });
  await window.type("c");
  await window.untilReason("The model predicts that nothing is to be added here.");
  await window.picture("nothing");
});

test("a model that loads: the percentage, and the suggestion without another key", async () => {
  core.do({ status: { state: "loading", progress: 0.4 }, hold: true });
  await open("demo.py", "a");
  await window.type("b");
  await untilSaid("loading 40 %", "Loading fake 40 %. Suggestions follow by themselves.");
  core.do({ status: READY, hold: false });
  await window.untilGhost("x = 1");
});

test("a long prompt: its tokens, and the suggestion without another key", async () => {
  await open("demo.py", "a");
  core.do({ hold: true });
  await window.type("b");
  await until("the tokens", async () => {
    core.do({ prefill: [512, 1280] });
    return (await window.status()) === "midfill: reading 512/1280 tokens";
  });
  await window.picture("reading");
  core.do({ hold: false });
  await window.untilGhost("x = 1");
});

test("a core that failed, with what to do", async () => {
  core.do({ status: { state: "failed", detail: "no device 'banana'" } });
  await open("demo.py", "a");
  await untilSaid("failed", "The core failed: no device 'banana'.");
});
