// The core and the model under control, from the editor: stopped, freed, listed, chosen and downloaded.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";

import { OPENING, READY, TEXT, until, Workbench, type Window } from "./workbench.ts";

const workbench = new Workbench();
let window: Window;

before(() => workbench.start());
after(() => workbench.stop());
afterEach((context) => window.close(context.name));

test("memory is freed, and cores are listed with their memory", async () => {
  window = await workbench.open("demo.py", TEXT);
  await window.type(OPENING);
  await window.untilSuggestion();
  await window.chooseOfCore("Free memory…");
  await window.pick("In memory and on disk");
  await window.untilText(/Freed \d+ resident tokens; the process had \d+ MB and has \d+ MB/);
  await window.command("midfill: Manage the Core…");
  await window.untilText(/weights \d+ MB, 1 workspace \d+ MB, KV: device 0 MB/);
});

test("a stopped core stays stopped until a suggestion is requested by hand", async () => {
  window = await workbench.open("demo.py", TEXT);
  await window.type(OPENING);
  await window.untilSuggestion();
  await window.chooseOfCore("Stop the core");
  await window.untilStatus(/^midfill: stopped$/);
  await window.untilReason("stopped the core: request a suggestion by hand");
  await window.press("Backspace");
  await window.type("h");
  assert.deepEqual(workbench.cores(), []);
  await window.toEnd();
  await window.press("Alt+\\");
  await window.untilStatus(READY);
  await until("a core", () => workbench.cores().length === 1);
});

test("models are offered: those that are here, and those to download", async () => {
  window = await workbench.open("demo.py", TEXT);
  await window.command("midfill: Choose Model…");
  await window.untilText(/On this machine/);
  await window.untilText(/ggml-org\/Qwen2.5-Coder-0.5B-Q8_0-GGUF/);
});
