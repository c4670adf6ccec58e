// Language servers and the core that they share: killed, back, and shared by windows.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";

import { OPENING, READY, TEXT, until, Workbench, type Window } from "./workbench.ts";

const EXITS = 5; // within three minutes, after which the language client does not start the server again
const AUTOMATIC = 2; // LSP's kind of requests that the user did not invoke

const workbench = new Workbench();
const windows: Window[] = [];

before(() => workbench.start());
after(() => workbench.stop());
afterEach(async (context) => {
  await Promise.all(windows.splice(0).map((window) => window.close(context.name)));
});

async function open(name: string): Promise<Window> {
  const window = await workbench.open(name, TEXT);
  windows.push(window);
  return window;
}

test("a server that is killed comes back, and knows what was typed", async () => {
  const window = await open("demo.py");
  const [first] = window.wire.servers();
  await window.type("    with ");
  process.kill(first!, "SIGKILL");
  await until("another server", () => window.wire.servers().length === 2);
  await window.type("open(path");
  await window.untilStatus(READY);
  await window.press("Backspace");
  await window.type("h");
  const { range } = await window.untilSuggestion();
  assert.deepEqual(range.start, { line: TEXT.split("\n").length - 1, character: OPENING.length });
});

test("a server that is killed too often is given up, and the status bar says so for good", async () => {
  const window = await open("demo.py");
  for (let count = 1; count <= EXITS; count++) {
    await until(`server ${count}`, () => window.wire.servers().length === count);
    await window.untilStatus(READY);
    process.kill(window.wire.servers().at(-1)!, "SIGKILL");
  }
  await window.untilStatus(/^midfill: failed$/);
  await window.page.waitForTimeout(3000);
  await window.untilStatus(/^midfill: failed$/);
  assert.equal(window.wire.servers().length, EXITS);
});

test("what was typed before the language server ran gets a suggestion, without another key", async () => {
  const window = await workbench.openUnready("demo.py", TEXT);
  windows.push(window);
  await window.toEnd();
  await window.page.keyboard.insertText(OPENING);
  assert.deepEqual(window.wire.servers(), []);
  await window.untilSuggestion();
  assert.equal(window.newest()?.triggerKind, AUTOMATIC);
});

test("a core that is killed comes back", async () => {
  const window = await open("demo.py");
  await window.type(OPENING);
  await window.untilSuggestion();
  const [core] = workbench.cores();
  process.kill(core!, "SIGKILL");
  await window.untilStatus(/^midfill: /);
  await window.untilStatus(READY);
  await window.press("Backspace");
  await window.type("h");
  await window.untilSuggestion();
  assert.notEqual(workbench.cores()[0], core);
  assert.equal(window.wire.servers().length, 1);
});

test("two windows have a server each, and share one core", async () => {
  const [one, other] = [await open("one.py"), await open("other.py")];
  for (const window of [one, other]) {
    await window.toEnd();
    await window.type(OPENING);
    await window.untilSuggestion();
  }
  assert.notDeepEqual(one.wire.servers(), other.wire.servers());
  assert.equal(workbench.cores().length, 1);
});

test("the server hears of cursor moves, and not of the cursor's following an edit", async () => {
  const window = await open("demo.py");
  const moves = (): unknown[] => window.wire.sent("midfill/didMoveCursor").map(({ position }) => position);
  await window.press("Control+Home");
  await until("the move to the start", () => isAt(moves().at(-1), 0, 0));
  await window.press("Control+End");
  const last = TEXT.split("\n").length - 1;
  await until("the move to the end", () => isAt(moves().at(-1), last, 0));
  const before = moves().length;
  await window.type(OPENING);
  await window.untilSuggestion();
  assert.equal(moves().length, before);
});

function isAt(position: unknown, line: number, character: number): boolean {
  return JSON.stringify(position) === JSON.stringify({ line, character });
}
