// Next edits: shown at rest, Tab jumps to one and applies it, and no busy user is asked.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";

import { ScriptedCore } from "./scriptedCore.ts";
import { until, Workbench, type Window } from "./workbench.ts";

process.env.MIDFILL_CORE_TOKEN = "secret"; // of the scripted cores
const ACCEPTED = "midfill.nextEditAccepted";
const REFUSED = "midfill.nextEditRefused";
const SHOWN = "textDocument/didShowInlineEdit";
const workbench = new Workbench();
let completions: ScriptedCore;
let edits: ScriptedCore;

before(async () => {
  [completions, edits] = await Promise.all([ScriptedCore.start(), ScriptedCore.start()]);
  completions.do({ answer: "" });
  await workbench.start();
  const model = { "midfill.nextEditModel": "sweep-b:any", "midfill.nextEditEngine": edits.url };
  workbench.settings({}, { "midfill.core": completions.url, ...model });
});
after(async () => {
  await workbench.stop();
  completions.stop();
  edits.stop();
});

async function open(name: string, text: string): Promise<Window> {
  const window = await workbench.openUnready(name, text);
  await window.untilStatus(/^midfill/);
  await until("a server", () => window.wire.sent("midfill/status").length > 0);
  await window.toEnd();
  return window;
}

test("Tab jumps to a next edit and applies it, and types a tab where none is shown", async () => {
  edits.do({ answer: "a = 1\nb = bb\nc = 3\nx\n" });
  const window = await open("demo.py", "a = 1\nb = aa\nc = 3\n");
  await window.type("x");
  await until("an edit", () => window.wire.sent(SHOWN).length > 0);
  await window.press("Tab");
  await until("the cursor at the edit", async () => (await window.cursor()) === "Ln 2, Col 5");
  await window.picture("next-edit");
  await window.press("Tab");
  await until("the edit", () => window.wire.text(window.file).includes("b = bb"));
  await until("its report", () => window.wire.sent("workspace/executeCommand").some(({ command }) => command === ACCEPTED));
  await until("the cursor behind it", async () => (await window.cursor()) === "Ln 2, Col 7");
  await window.press("Tab");
  assert.equal(await window.save(), "a = 1\nb = bb  \nc = 3\nx");
  await window.close("next edits");
});

test("a Tab that follows a key at once is typed, though an edit was shown", async () => {
  edits.do({ answer: "a = 1\nb = bb\nc = 3\nx\n" });
  const window = await open("hasty.py", "a = 1\nb = aa\nc = 3\n");
  await window.type("x");
  await until("an edit", () => window.wire.sent(SHOWN).length > 0);
  await Promise.all([window.press("y"), window.press("Tab")]); // before VS Code hears that the edit is gone
  const text = (): string => window.wire.text(window.file);
  await until("the tab", () => text() === "a = 1\nb = aa\nc = 3\nxy  ", text);
  await window.close("next edits hasty");
});

test("an Escape that follows a key at once means what it does without an edit, though one was shown", async () => {
  edits.do({ answer: "a = 1\nb = bb\nc = 3\nx\n" });
  const window = await open("escaped.py", "a = 1\nb = aa\nc = 3\n");
  await window.type("x");
  await until("an edit", () => window.wire.sent(SHOWN).length > 0);
  let place = "";
  await window.press("Shift+Alt+ArrowUp"); // a second cursor
  await until("two cursors", async () => /2 sel/.test((place = await window.cursor())), () => place);
  await Promise.all([window.press("y"), window.press("Escape")]); // likewise
  await until("one cursor", async () => (place = await window.cursor()) === "Ln 4, Col 3", () => place);
  assert.equal(await window.save(), "a = 1\nb = aa\ncy = 3\nxy");
  assert.ok(!window.wire.sent("workspace/executeCommand").some(({ command }) => command === REFUSED));
  await window.close("next edits escaped");
});

test("with a selection Tab means what it does without an edit, though one is shown", async () => {
  edits.do({ answer: "a = 1\nb = bb\nc = 3\nx\n" });
  const window = await open("selected.py", "a = 1\nb = aa\nc = 3\n");
  await window.type("x");
  await until("an edit", () => window.wire.sent(SHOWN).length > 0);
  await window.press("Control+a", "Tab");
  const text = (): string => window.wire.text(window.file);
  await until("indented lines", () => text() === "    a = 1\n    b = aa\n    c = 3\n    x", text);
  assert.ok(!window.wire.sent("workspace/executeCommand").some(({ command }) => command === ACCEPTED));
  await window.close("next edits selected");
});

test("an edit goes where ghost text comes late, and with its server", async () => {
  edits.do({ answer: "a = 1\nb = bb\nc = 3\nx\n" });
  completions.do({ answer: "yz = 4", hold: true });
  const window = await open("late.py", "a = 1\nb = aa\nc = 3\n");
  await window.type("x");
  let found: string[] = [];
  const shown = (texts: string[]): Promise<void> =>
    until("the edit's text", async () => isDeepStrictEqual((found = await window.decorations()), texts), () => JSON.stringify(found));
  await shown(["bb"]);
  completions.do({ hold: false });
  await window.page.locator(".ghost-text-decoration").first().waitFor();
  await shown([]);
  completions.do({ answer: "" });
  edits.do({ answer: "a = 1\nb = bb\nc = 3\nx#\n" });
  await window.type("#");
  await shown(["bb"]);
  process.kill(window.wire.servers().at(-1)!, "SIGKILL");
  await shown([]);
  await window.close("next edits late");
});

test("a server that ends while it is asked leaves no error", async () => {
  edits.do({ hold: true });
  const window = await open("ended.py", "a = 1\nb = aa\nc = 3\n");
  await window.type("x");
  const errors: string[] = [];
  window.page.on("console", (message) => message.text().startsWith("[midfill.midfill]") && errors.push(message.text()));
  await until("a request", () => window.wire.sent("textDocument/copilotInlineEdit").length > 0);
  process.kill(window.wire.servers().at(-1)!, "SIGKILL");
  await until("another server", () => window.wire.servers().length > 1);
  await sleep(3000); // VS Code reports what is not handled within a second
  edits.do({ hold: false });
  assert.deepEqual(errors, []);
  await window.close("next edits ended");
});

test("nothing is asked while the popup is open or after several lines were selected", async () => {
  edits.do({ answer: "" });
  const window = await open("busy.py", "value = 1\nvalid = 2\n");
  const asked = (): number => window.wire.sent("textDocument/copilotInlineEdit").length;
  await window.type("x");
  await until("a request", () => asked() > 0);
  await window.press("Enter");
  await window.type("va");
  await window.press("Control+Alt+Space");
  await window.page.locator(".suggest-widget.visible .monaco-list-row.focused").waitFor();
  await sleep(1000);
  let before = asked();
  await window.type("l");
  await sleep(1000);
  assert.equal(asked(), before);
  await window.press("Escape");
  await window.press("Shift+ArrowUp", "Shift+ArrowUp", "ArrowRight");
  before = asked();
  await window.type("y");
  await sleep(1000);
  assert.equal(asked(), before);
  await window.close("next edits busy");
});

const LINES = Array.from({ length: 60 }, (_, line) => `value_${line} = compute(${line})`);
const at = (line: number, changed: Record<number, string>, typed: string): { before: string; after: string } => ({
  before: LINES.join("\n"),
  after: LINES.map((text, number) => changed[number] ?? text + (number === line ? typed : "")).join("\n"),
});
interface Place {
  name: string;
  changed: Record<number, string>;
  shown: string[];
  /** Where the cursor is once the edit is applied. */
  cursor: string;
  scrolled?: number;
}
const PLACES: Place[] = [
  { name: "above the cursor", changed: { 26: "value_26 = measure(26, unit)" }, shown: ["measure", ", unit"], cursor: "Ln 27, Col 28" },
  {
    name: "below the cursor",
    changed: { 33: "value_33 = measure(33)", 34: "if value_33:\n    check(value_33)\nvalue_34 = compute(34)" },
    shown: ["measure", " ⏎ if value_33: ⏎     check(value_33)"],
    cursor: "Ln 36, Col 20",
  },
  {
    name: "in several places",
    changed: { 27: "value_27 = measure(27)", 28: "value_28 = measure(28)", 33: "value_33 = measure(33)" },
    shown: ["measure", "measure", "measure"],
    cursor: "Ln 34, Col 19",
  },
  { name: "out of sight", changed: { 22: "value_22 = measure(22)" }, shown: ["next edit in line 23"], cursor: "Ln 23, Col 19", scrolled: 25 },
];
/** Show an edit to a user who has typed in the 31st line. */
async function showAt({ changed, shown, scrolled = 0 }: Place): Promise<[window: Window, after: string]> {
  const line = 30;
  const { before, after } = at(line, changed, "x");
  edits.do({ answer: after.split("\n").slice(line - 10, line + 11 + (after.split("\n").length - LINES.length)).join("\n") + "\n" });
  const window = await open("places.py", before);
  await window.press("Control+g");
  await window.page.keyboard.insertText(`${line + 1}:99`);
  await window.press("Enter");
  for (let times = 0; times < scrolled; times += 1) {
    await window.press("Control+ArrowDown");
  }
  await window.type("x");
  await until("an edit", () => window.wire.sent(SHOWN).length > 0);
  let found: string[] = [];
  await until("its texts", async () => isDeepStrictEqual((found = await window.decorations()), shown), () => JSON.stringify(found));
  return [window, after];
}
for (const place of PLACES) {
  const { name, cursor } = place;
  test(`an edit ${name}`, async () => {
    const [window, after] = await showAt(place);
    await window.picture(`next edit ${name}`);
    const text = (): string => window.wire.text(window.file);
    const places: string[] = [];
    for (let times = 0; times < 2 && text() !== after; times += 1) {
      places.push(await window.cursor());
      await window.press("Tab");
      await until("a jump or the edit", async () => text() === after || (await window.cursor()) !== places.at(-1));
      await window.picture(`next edit ${name}, Tab ${times + 1}`);
    }
    await until("the edit", () => text() === after, text);
    await until("the cursor behind it", async () => (await window.cursor()) === cursor, () => places.join());
    await window.close(`next edit ${name} applied`);
  });
}

test("the note of an edit out of sight goes with the jump", async () => {
  const [window] = await showAt(PLACES.find(({ name }) => name === "out of sight") as Place);
  const asked = (): number => window.wire.sent("textDocument/copilotInlineEdit").length;
  await window.press("Shift+ArrowUp"); // after a selection of several lines nothing is asked for some time
  await until("a selection", async () => (await window.cursor()).includes("selected"));
  await window.press("ArrowRight", "Tab");
  const before = asked();
  await until("the cursor at the edit", async () => (await window.cursor()).startsWith("Ln 23,"));
  await until("the edit alone", async () => isDeepStrictEqual(await window.decorations(), ["measure"]));
  assert.equal(asked(), before);
  await window.close("next edit without a note");
});
