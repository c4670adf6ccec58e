// Settings, the menu and the commands, and what the status bar says of them.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";

import { until, Workbench, type Window } from "./workbench.ts";

const TEXT = `def read_text(path):
    with open(path, "r") as file:
        return file.read()


def read_lines(path):
`;
const OPENING = "    with open(path";

const workbench = new Workbench();
let window: Window;

before(() => workbench.start());
after(() => workbench.stop());
afterEach(async (context) => {
  workbench.settings({});
  await window.close(context.name);
});

test("a language is switched off, and on again, while the editor runs", async () => {
  workbench.settings({ "midfill.disabledLanguages": ["python"] });
  window = await workbench.openUnready("demo.py", TEXT);
  await window.untilStatus(/^midfill: off$/);
  await until("a server", () => window.wire.sent("midfill/status").length > 0);
  await window.toEnd();
  await window.type(OPENING);
  await until("an answer", () => window.newest() !== undefined);
  assert.deepEqual(window.newest()?.items, []);
  assert.equal(await window.ghost(), "");
  await window.changeSettings({});
  await window.untilStatus(/^midfill( \d|$)/);
  await window.press("Backspace");
  await window.type("h");
  await window.untilSuggestion();
});

test("a changed setting is taken at once, by the same server", async () => {
  window = await workbench.open("demo.py", TEXT);
  await window.type(OPENING);
  const longer = await window.untilSuggestion();
  await window.changeSettings({ "midfill.maxTokens": 1 });
  await until("the change", () => window.wire.sent("workspace/didChangeConfiguration").length > 0);
  assert.deepEqual(window.wire.sent("workspace/didChangeConfiguration").at(-1), {
    settings: { holdBackPercent: 0, maxTokens: 1 },
  });
  await window.press("Backspace");
  await window.type("h");
  const shorter = await window.untilSuggestion();
  assert.ok(shorter.insertText.length < longer.insertText.length, shorter.insertText);
  assert.equal(window.wire.servers().length, 1);
});

test("the menu switches midfill off for this workspace, and its server ends", async () => {
  window = await workbench.open("demo.py", TEXT);
  const [server] = window.wire.servers();
  await window.choose("Switch off here");
  await window.untilStatus(/^midfill: off$/);
  await until("the server's end", () => !isAlive(server!));
  await window.choose("Switch on here");
  await window.untilStatus(/^midfill( \d|$)/);
  assert.equal(window.wire.servers().length, 2);
});

test("the menu switches the file's language off", async () => {
  window = await workbench.open("demo.py", TEXT);
  await window.choose("Switch off for python");
  await window.untilStatus(/^midfill: off$/);
  await until("the change", () =>
    window.wire.sent("workspace/didChangeConfiguration").some((sent) => sent.settings.disabledLanguages?.[0] === "python"),
  );
});

test("the doctor's report is shown", async () => {
  window = await workbench.open("demo.py", TEXT);
  await window.choose("Doctor");
  const report = window.page.locator(".xterm-rows");
  await until("the report", async () => /nothing is wrong|wrong: see/.test((await report.textContent()) ?? ""));
});

test("where there is no midfill command, that is said, and installing it is offered", async () => {
  workbench.settings({}, { "midfill.serverPath": "/nowhere/midfill" });
  window = await workbench.openUnready("demo.py", TEXT);
  await window.untilStatus(/^midfill: not installed$/);
  const offer = window.page.locator(".notification-toast", { hasText: "no midfill command at /nowhere/midfill" });
  await offer.getByRole("button", { name: "Install", exact: true }).waitFor();
});

test("a command that is no server is reported with its last words", async () => {
  workbench.settings({}, { "midfill.serverPath": "/bin/ls" });
  window = await workbench.openUnready("demo.py", TEXT);
  await window.untilStatus(/^midfill: failed$/);
  const toast = window.page.locator(".notification-toast", { hasText: "did not start" });
  await toast.waitFor();
  assert.match((await toast.textContent()) ?? "", /did not start: \S*ls: cannot access/);
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
