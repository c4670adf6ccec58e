// Settings, the menu and the commands, and what the status bar says of them.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import * as path from "node:path";
import { after, afterEach, before, test } from "node:test";

import { OPENING, READY, TEXT, until, Workbench, type Window } from "./workbench.ts";

interface Keybinding {
  key: string;
  mac?: string;
  command: string;
  when: string;
}

const MANIFEST = path.join(import.meta.dirname, "../../../vscode-client/package.json");
const workbench = new Workbench();
let window: Window;

before(() => workbench.start());
after(() => workbench.stop());
afterEach(async (context) => {
  workbench.settings({});
  await window.close(context.name);
});

test("a setting that the page does not have is taken from the user's file, and given up again", async () => {
  workbench.settings({ "midfill.disabledLanguages": ["python"] });
  window = await workbench.openUnready("demo.py", TEXT);
  await window.untilStatus(/^midfill: off for python$/);
  await until("a server", () => window.wire.sent("midfill/status").length > 0);
  await window.toEnd();
  await window.type(OPENING);
  await until("an answer", () => window.newest() !== undefined);
  assert.deepEqual(window.newest()?.items, []);
  assert.equal(await window.ghost(), "");
  await window.changeSettings({});
  await window.untilStatus(READY);
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
    settings: { holdBackPercent: 0, maxTokens: 1, shortenUnlikely: false },
  });
  await window.press("Backspace");
  await window.type("h");
  const shorter = await window.untilSuggestion();
  assert.ok(shorter.insertText.length < longer.insertText.length, shorter.insertText);
  assert.equal(window.wire.servers().length, 1);
});

test("the menu switches midfill off and on for this workspace: no file changes, and the server stays", async () => {
  window = await workbench.open("demo.py", TEXT);
  await window.type(OPENING);
  await window.untilSuggestion();
  await window.choose("Switch off here");
  await window.untilStatus(/^midfill: off$/);
  await window.untilGhost("");
  const asked = (): number => window.wire.sent("textDocument/inlineCompletion").length;
  const before = asked();
  await window.toEnd();
  await window.type(", ");
  await until("the edit", () => window.wire.text(window.file).endsWith(`${OPENING}, `));
  await window.press("Alt+\\");
  await window.command("midfill: Show Menu");
  await window.untilMenu();
  await window.dismissMenu();
  assert.equal(asked(), before);
  await window.choose("Switch on here");
  await window.untilStatus(READY);
  await window.toEnd();
  await window.type('"');
  await until("a request", () => asked() > before);
  assert.equal(window.wire.servers().length, 1);
  assert.ok(!existsSync(path.join(path.dirname(window.file), ".vscode")));
});

test("the menu restarts the language server and the core", async () => {
  window = await workbench.open("demo.py", TEXT);
  const before = [...window.wire.servers(), ...workbench.cores()];
  await window.choose("Restart");
  await window.page.locator(".notification-toast", { hasText: "midfill: Restarted." }).waitFor();
  await window.untilStatus(READY);
  assert.deepEqual(window.wire.sent("workspace/executeCommand"), [{ command: "midfill.restartCore" }]);
  const after = [...window.wire.servers(), ...workbench.cores()];
  assert.deepEqual(
    after.filter((pid) => before.includes(pid)),
    window.wire.servers().slice(0, 1), // which is written down, and gone
  );
  assert.equal(after.length, 3);
});

test("an excluded file gets no suggestions, and the status tells the rule", async () => {
  window = await workbench.openUnready(".env", "TOKEN=a1b2c3\n");
  await window.toEnd();
  await window.type("USER=");
  await window.untilStatus(/^midfill: excluded$/);
  await window.untilReason("This file gets no suggestions, and its text enters no prompt");
  await window.picture("excluded");
  assert.equal(await window.ghost(), "");
  assert.deepEqual(
    window.wire.exchanges().flatMap(({ items }) => items),
    [],
  );
});

test("the menu switches the file's language off and on, and nothing restarts", async () => {
  window = await workbench.openUnready(".env", "KEY=");
  await window.toEnd();
  await window.type("1");
  await window.untilStatus(/^midfill: excluded$/);
  await window.choose("Suggest here all the same");
  await window.untilStatus(READY);
  const { languageId: language } = window.wire.sent("textDocument/didOpen")[0]!.textDocument as unknown as { languageId: string };
  await window.choose(`Switch off for ${language}`);
  await window.untilStatus(/^midfill: off$/);
  await window.choose(`Switch on for ${language}`);
  await window.untilStatus(READY); // and not "excluded": the server has forgotten nothing
  assert.equal(window.wire.servers().length, 1);
});

test("the doctor's report is shown", async () => {
  window = await workbench.open("demo.py", TEXT);
  await window.choose("Check the installation");
  const report = window.page.locator(".xterm-rows");
  await until("the report's end", async () => /no problems found|✗/.test((await report.textContent()) ?? ""));
});

test("where there is no midfill command, that is said, and installing it is offered", async () => {
  workbench.settings({}, { "midfill.serverPath": "/nowhere/midfill" });
  window = await workbench.openUnready("demo.py", TEXT);
  await window.untilStatus(/^midfill: not installed$/);
  const offer = window.page.locator(".notification-toast", { hasText: "no midfill command at /nowhere/midfill" });
  await offer.getByRole("button", { name: "Install", exact: true }).waitFor();
});

test("the environment of the clone that the extension was built in is found without a setting", async () => {
  workbench.settings({}, { "midfill.serverPath": "" });
  window = await workbench.open("demo.py", TEXT);
  await window.type(OPENING);
  await window.untilSuggestion();
});

for (const [system, userAgent] of [
  ["this system", undefined],
  ["macOS", "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36"],
] as const) {
  test(`no key of VS Code's is taken on ${system}`, async () => {
    window = await workbench.openUnready("demo.py", TEXT, userAgent);
    await window.untilStatus(/^midfill/);
    const mac = userAgent !== undefined;
    const defaults = await window.defaultKeys(mac);
    const { contributes } = JSON.parse(readFileSync(MANIFEST, "utf8")) as { contributes: { keybindings: Keybinding[] } };
    const always = contributes.keybindings.filter(({ when }) => !when.startsWith("midfill.nextEditShown && "));
    const ours = always.map((binding) => ({ ...binding, key: (mac ? binding.mac : undefined) ?? binding.key }));
    for (const { key, command } of ours) {
      const there = defaults.filter((binding) => binding.key === key).map((binding) => binding.command);
      assert.deepEqual([...new Set(there)], [command], key);
    }
    assert.ok(defaults.some(({ key }) => key === (mac ? "cmd+down" : "ctrl+down")), "the list is that of the system");
  });
}

test("a command that is no server is reported with its last words", async () => {
  workbench.settings({}, { "midfill.serverPath": "/bin/ls" });
  window = await workbench.openUnready("demo.py", TEXT);
  await window.untilStatus(/^midfill: failed$/);
  const toast = window.page.locator(".notification-toast", { hasText: "did not start" });
  await toast.waitFor();
  assert.match((await toast.textContent()) ?? "", /did not start: \S*ls: cannot access/);
});

test("a stopped core is told by the status, and stays stopped until it is restarted", async () => {
  window = await workbench.open("demo.py", TEXT);
  await window.chooseOfCore("Stop the core");
  await window.page.locator(".notification-toast", { hasText: "midfill: Stopped the core for every editor" }).waitFor();
  await window.untilStatus(/^midfill: stopped$/);
  await window.toEnd();
  await window.type(OPENING);
  await until("a request", () => window.wire.sent("textDocument/inlineCompletion").length > 0);
  await window.untilReason("stopped the core");
  await window.picture("stopped");
  assert.equal(await window.ghost(), "");
  assert.deepEqual(workbench.cores(), []);
  await window.chooseOfCore("Unload the model");
  await window.page.locator(".notification-toast", { hasText: "midfill: not connected to a core" }).waitFor();
  await window.choose("Restart");
  await window.untilStatus(READY);
  assert.equal(workbench.cores().length, 1);
});
