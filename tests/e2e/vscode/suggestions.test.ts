// Suggestions as they are seen and accepted in the editor.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";

import { accepted, type Item } from "./wire.ts";
import { READY, until, Workbench, type Window } from "./workbench.ts";

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
const CLASSES = `class Point:
    def __init__(self, x, y, name):
        self.x = x
        self.y = y
        self.name = name


class Circle:
    def __init__(self, x, y, name):
        self.x = x
        self.y = y
        self.name = name
`;
const OPENING = "    with open(path";

/** Where a block may begin. What a model has to say there is its own affair: one line will do for some. */
const BLOCK_PLACES = [
  `${CLASSES}\n\nclass Square:\n    def __init__(self, x, y, name):\n        `,
  `${CLASSES}\n    def show(self):\n        `,
  `${FILES}    `,
  `${FILES}    with open(path, "w") as file:\n        `,
  "for name in names:\n    ",
  "def first(items):\n    if not items:\n        return None\n    return items[0]\n\n\ndef last(items):\n    ",
  "import unittest\n\n\nclass SumTest(unittest.TestCase):\n    def test_sum(self):\n        ",
  "import sys\n\n\ndef main():\n    ",
  "try:\n    import tomllib\nexcept ImportError:\n    ",
  "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        ",
];

const workbench = new Workbench();
let window: Window;

before(() => workbench.start());
after(() => workbench.stop());
afterEach(async (context) => {
  workbench.settings({});
  await window.close(context.name);
});

test("what is typed is completed, Tab accepts, and the file on disk is right", async () => {
  window = await workbench.open("demo.py", FILES);
  await window.type(OPENING);
  const item = await window.untilSuggestion();
  await window.untilStatus(READY);
  await window.untilReason("Last suggestion: ");
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
  await until("its cost", () => window.wire.sent("midfill/usage").at(-1)?.source === "typed");
});

test("a word is accepted, and the rest stays", async () => {
  window = await workbench.open("demo.py", FILES);
  await window.type(OPENING);
  const { insertText } = await window.untilSuggestion();
  const word = await window.acceptPart("Control+ArrowRight", insertText);
  assert.equal(await window.save(), FILES + OPENING + word);
});

test("a block is suggested where one may begin, and accepted by the line or as a whole", async () => {
  workbench.settings({ "editor.autoIndent": "none" }); // places are put in as they are
  window = await workbench.open("demo.py", FILES);
  const [place, item] = await placeOfBlock();
  await window.untilGhost(item.insertText);
  const before = workbench.statistics();
  let rest = item.insertText;
  while (rest !== "") {
    const line = await window.acceptPart("Control+ArrowDown", rest);
    assert.equal(line.trimEnd(), rest.split("\n")[0]);
    rest = rest.slice(line.length);
  }
  assert.equal(await window.save(), accepted(place, item));
  await window.replaceText(place);
  const again = await window.untilSuggestion();
  assert.equal(again.insertText, item.insertText);
  await window.press("Tab");
  await window.untilGhostIsNot(item.insertText);
  assert.equal(await window.save(), accepted(place, item));
  await until("both to be counted", () => counted(before, "accepted") === 1);
  assert.equal(counted(before, "accepted_partly"), 1);
  assert.equal(counted(before, "accepted_characters"), 2 * item.insertText.length);
});

test("words and the rest are counted once, and the statistics show it", async () => {
  window = await workbench.open("demo.py", FILES);
  await window.type(OPENING);
  const { insertText } = await window.untilSuggestion();
  const before = workbench.statistics();
  const word = await window.acceptPart("Control+ArrowRight", insertText);
  await until("the word to be counted", () => counted(before, "accepted_partly") === 1);
  assert.equal(counted(before, "accepted_characters"), word.length);
  const item = await window.untilSuggestion();
  await window.press("Tab");
  await until("the rest to be counted", () => counted(before, "accepted_characters") > word.length);
  assert.equal(counted(before, "accepted_characters"), (await window.save()).length - (FILES + OPENING).length);
  assert.equal(counted(before, "accepted"), 0, item.insertText);
  await window.choose("Show statistics");
  const page = window.page.frameLocator("iframe.webview").frameLocator("#active-frame");
  await page.locator("pre", { hasText: "of your code" }).waitFor();
  await window.picture("statistics");
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

test("who asks gets alternatives, and goes through them", async () => {
  workbench.settings({ "editor.inlineSuggest.showToolbar": "always" });
  window = await workbench.open("demo.py", FILES + OPENING);
  await window.press("Alt+\\");
  const first = await window.untilSuggestion();
  const { items } = window.newest()!;
  assert.ok(items.length > 1, JSON.stringify(items));
  const count = window.page.locator(".inlineSuggestionsHints");
  await until("the count", async () => (await count.textContent())?.includes(`1/${items.length}`) === true);
  for (const [index, { insertText }] of [...items.entries()].slice(1)) {
    await window.press("Alt+]");
    await window.untilGhost(insertText);
    await until("the count", async () => (await count.textContent())?.includes(`${index + 1}/${items.length}`) === true);
  }
  await window.press("Alt+]"); // round again
  await window.untilGhost(first.insertText);
  await window.press("Alt+[");
  const last = items.at(-1)!;
  await window.untilGhost(last.insertText);
  await window.press("Tab");
  await window.untilGhostIsNot(last.insertText);
  assert.equal(await window.save(), accepted(FILES + OPENING, last));
});

test("with the popup open, Tab stays the popup's", async () => {
  window = await workbench.open("demo.py", FILES);
  await window.type("    with op");
  await window.untilSuggestion();
  await window.press("Control+Alt+Space");
  const entry = window.page.locator(".suggest-widget.visible .monaco-list-row.focused");
  await entry.waitFor();
  const label = (await entry.getAttribute("aria-label"))!.split(",")[0]!;
  await until("a request with the entry", () => window.newest()?.selected?.text === label);
  await window.picture("popup");
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
  window = await workbench.open("demo.py", FILES);
  await window.type(OPENING);
  const item = await window.untilSuggestion();
  await window.press("Tab");
  await window.untilGhostIsNot(item.insertText);
  const saved = await window.save();
  assert.equal(saved, accepted(`${FILES}${OPENING})`, item));
  const line = saved.split("\n").at(-1)!;
  assert.equal(line.split("(").length, line.split(")").length, line);
});

/** How much this count has grown. */
function counted(before: Record<string, number>, name: string): number {
  return (workbench.statistics()[name] ?? 0) - (before[name] ?? 0);
}

/** Finds a place where the model has several lines to say: the text up to there, and what it says. */
async function placeOfBlock(): Promise<[string, Item]> {
  for (const place of BLOCK_PLACES) {
    const [item] = (await window.replaceText(place)).items;
    if (item !== undefined && /^\S.*\n.*\S/.test(item.insertText)) {
      return [place, item];
    }
  }
  throw new Error("the model has no block to suggest anywhere");
}
