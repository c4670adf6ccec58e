// Next edits: Tab jumps to one and applies it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { ScriptedCore } from "./scriptedCore.ts";
import { until, Workbench, type Window } from "./workbench.ts";

process.env.MIDFILL_CORE_TOKEN = "secret"; // of the scripted cores
const ACCEPTED = "midfill.nextEditAccepted";
const workbench = new Workbench();
let cores: ScriptedCore[];
let window: Window;

before(() => workbench.start());
after(async () => {
  await window.close("next edits");
  await workbench.stop();
  cores.forEach((core) => {
    core.stop();
  });
});

test("Tab jumps to a next edit and applies it, and types a tab where none is shown", async () => {
  cores = [await ScriptedCore.start(), await ScriptedCore.start()];
  const [completions, edits] = cores as [ScriptedCore, ScriptedCore];
  completions.do({ answer: "" });
  edits.do({ answer: "a = 1\nb = bb\nc = 3\nx\n" });
  const model = { "midfill.nextEditModel": "sweep-b:any", "midfill.nextEditEngine": edits.url };
  workbench.settings({}, { "midfill.core": completions.url, ...model });
  window = await workbench.openUnready("demo.py", "a = 1\nb = aa\nc = 3\n");
  await window.untilStatus(/^midfill/);
  await until("a server", () => window.wire.sent("midfill/status").length > 0);
  await window.toEnd();
  await window.type("x");
  await until("an edit", () => window.wire.sent("textDocument/didShowInlineEdit").length > 0);
  await window.press("Tab");
  await until("the cursor at the edit", async () => (await window.page.locator("text=Ln 2, Col 5").count()) > 0);
  await window.picture("next-edit");
  await window.press("Tab");
  await until("the edit", () => window.wire.text(window.file).includes("b = bb"));
  await until("its report", () => window.wire.sent("workspace/executeCommand").some(({ command }) => command === ACCEPTED));
  await until("the cursor behind it", async () => (await window.page.locator("text=Ln 2, Col 7").count()) > 0);
  await window.press("Tab");
  assert.equal(await window.save(), "a = 1\nb = bb  \nc = 3\nx");
});
