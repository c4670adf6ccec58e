// Suggestions as they are seen and accepted in the editor.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";

import { accepted, type Item } from "./wire.ts";
import { until, Workbench, type Window } from "./workbench.ts";

const FILES = `import json


def read_text(path):
    with open(path, "r") as file:
        return file.read()


def read_json(path):
    with open(path, "r") as file:
        return json.load(file)


def write_text(path, text):
    with open(path, "w") as file:
        file.write(text)


def write_json(path, value):
`;
const OPENING = "    with open(path";

const workbench = new Workbench();
let window: Window;

before(() => workbench.start());
after(() => workbench.stop());
afterEach((context) => window.close(context.name));

test("what is typed is completed, Tab accepts, and the file on disk is right", async () => {
  window = await workbench.open("demo.py", FILES);
  await window.type(OPENING);
  const item = await window.untilSuggestion();
  await window.untilStatus(/^midfill [\d.]+ ms (hot|warm|cold)$/);
  await window.press("Tab");
  await window.untilGhostIsNot(item.insertText);
  assert.equal(await window.save(), accepted(FILES + OPENING, item));
});

test("typing what is suggested keeps the rest, without the core", async () => {
  window = await workbench.open("demo.py", FILES);
  await window.type(OPENING);
  const { insertText } = await window.untilSuggestion();
  await window.type(insertText.slice(0, 3));
  await window.untilGhost(insertText.slice(3));
  await until("the rest", () => window.newest()?.position.character === OPENING.length + 3);
  assert.equal(window.newest()?.items[0]?.insertText, insertText.slice(3));
  assert.equal(window.wire.sent("midfill/usage").at(-1).source, "typed");
});

test("a word is accepted, and the rest stays", async () => {
  window = await workbench.open("demo.py", FILES);
  await window.type(OPENING);
  const { insertText } = await window.untilSuggestion();
  await window.press("Control+ArrowRight");
  const rest = await window.untilRest(insertText);
  assert.equal(await window.save(), FILES + OPENING + insertText.slice(0, -rest.length));
});

test("a block is suggested where one may begin, and accepted by the line or as a whole", async () => {
  window = await workbench.open("demo.py", FILES);
  await window.type("    ");
  const item = await window.untilSuggestion();
  assert.match(item.insertText, /\S.*\n.*\S/, "the model has to suggest several lines here");
  await window.press("Control+ArrowDown");
  const rest = await window.untilRest(item.insertText);
  await window.press("Tab");
  await window.untilGhostIsNot(rest);
  assert.equal(await window.save(), accepted(FILES + "    ", item));
});

test("Escape dismisses, and the text stays as it is", async () => {
  window = await workbench.open("demo.py", FILES);
  await window.type(OPENING);
  await window.untilSuggestion();
  await window.press("Escape");
  await window.untilGhost("");
  assert.equal(await window.save(), FILES + OPENING);
});

test("a suggestion can be asked for, with nothing typed", async () => {
  window = await workbench.open("demo.py", FILES + OPENING);
  assert.equal(await window.ghost(), "");
  await window.press("Alt+\\");
  const item = await window.untilSuggestion();
  assert.equal(window.newest()!.triggerKind, 1);
  await window.press("Tab");
  await window.untilGhostIsNot(item.insertText);
  assert.equal(await window.save(), accepted(FILES + OPENING, item));
});

test("with the popup open, Tab stays the popup's", async () => {
  window = await workbench.open("demo.py", FILES);
  await window.type("    with op");
  await window.untilSuggestion();
  await window.press("Control+Alt+Space");
  const entry = window.page.locator(".suggest-widget.visible .monaco-list-row.focused");
  await entry.waitFor();
  const label = (await entry.getAttribute("aria-label"))!.split(",")[0]!;
  await window.press("Tab");
  await entry.waitFor({ state: "hidden" });
  assert.equal(await window.save(), `${FILES}    with ${label}`);
});

test("lines that end in CRLF stay so", async () => {
  const text = FILES.replaceAll("\n", "\r\n");
  window = await workbench.open("demo.py", text);
  await window.type(OPENING);
  const item = await window.untilSuggestion();
  await window.press("Tab");
  await window.untilGhostIsNot(item.insertText);
  const expected = accepted(FILES + OPENING, { ...item, insertText: item.insertText.replaceAll("\r\n", "\n") });
  assert.equal(await window.save(), expected.replaceAll("\n", "\r\n"));
});

test("behind an emoji, the suggestion stands where the cursor is", async () => {
  const line = "    show('😋', value, ";
  const text = FILES.replaceAll("        ", "        show('😋', value, 1)\n        ");
  window = await workbench.open("demo.py", text);
  await window.type(line);
  const item = await window.untilSuggestion();
  assert.equal(item.range.start.character, line.length);
  await window.press("Tab");
  await window.untilGhostIsNot(item.insertText);
  assert.equal(await window.save(), accepted(text + line, item));
});

test("a bracket that the editor has closed is not closed again", async () => {
  workbench.settings({ "editor.autoClosingBrackets": "always" });
  try {
    window = await workbench.open("demo.py", FILES);
    await window.type(OPENING);
    let item: Item | undefined;
    await until("a suggestion", async () => {
      item = window.newest()?.items[0];
      return item !== undefined && (await window.ghost()) !== "" && item.insertText.includes(")");
    });
    await window.press("Tab");
    await window.untilGhost("");
    const saved = await window.save();
    assert.equal(saved, accepted(`${FILES}${OPENING})`, item!));
    const line = saved.split("\n").at(-1)!;
    assert.equal(line.split("(").length, line.split(")").length, line);
  } finally {
    workbench.settings({});
  }
});
