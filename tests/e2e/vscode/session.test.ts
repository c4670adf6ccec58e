// A recorded session typed into VS Code, while next edits are offered, jumped to, accepted, undone and refused.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { createInterface } from "node:readline";
import { test, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { accepted } from "./wire.ts";
import { until, Workbench, type Window } from "./workbench.ts";

const ROOT = path.resolve(import.meta.dirname, "../../..");
const PYTHON = path.join(ROOT, ".venv/bin/python");
const SERVER = `#!${PYTHON}\nfrom tests.e2e.recorded_session import SERVER\nexec(SERVER)\n`;
const AHEAD = 12; // transactions that the model predicts at most
const LONGEST_TYPED = 40; // what is longer was pasted, or selected and deleted
const CHOICES = ["accept", "accept", "refuse", "jump", "ignore"] as const;
const SETTINGS = {
  "editor.autoIndent": "none",
  "editor.trimAutoWhitespace": false,
  "editor.wordBasedSuggestions": "off",
  "editor.dragAndDrop": false,
  "editor.pasteAs.enabled": false, // what other extensions make of it comes late
  // It has no brackets: VS Code indents a closing bracket that begins a line as its partner's line, and no setting forbids that.
  "files.associations": { "session.txt": "ignore" },
};

type Patch = [position: number, deleted: number, inserted: string];

/** What `tests/e2e/recorded_session.py` says of the session. */
interface Session {
  completions: string;
  edits: string;
  start: string;
  transactions: Patch[][];
  rests: boolean[];
}

const applied = (text: string, patches: Patch[]): string =>
  patches.reduce((now, [position, deleted, inserted]) => now.slice(0, position) + inserted + now.slice(position + deleted), text);

/** The keys that select so much from the cursor on; "down" keeps the column in lines that are long enough. */
function selecting(text: string, position: number, length: number): string[] {
  const lines = text.slice(position, position + length).split("\n");
  const column = columnOf(text, position);
  const goal = columnOf(text, position + length);
  const last = text.slice(position + length - goal).split("\n", 1)[0]!;
  const landed = Math.min(column, last.length);
  const across = goal > landed ? "Shift+ArrowRight" : "Shift+ArrowLeft";
  return [...Array<string>(lines.length - 1).fill("Shift+ArrowDown"), ...Array<string>(Math.abs(goal - landed)).fill(across)];
}

const columnOf = (text: string, position: number): number => text.slice(0, position).split("\n").at(-1)!.length;

/** Types the session, and decides about each edit that is shown. */
class User {
  now = 0;
  readonly done: Record<string, number> = {};
  private readonly texts: string[];
  private rests = 0;
  private place: number | undefined; // the cursor's, where it is known
  private story: { at: number; says: string }[] = []; // what was done since the last check

  private readonly window: Window;
  private readonly session: Session;
  private readonly tell: (now: number) => void;

  constructor(window: Window, session: Session, tell: (now: number) => void) {
    [this.window, this.session, this.tell] = [window, session, tell];
    this.texts = session.transactions.reduce((texts, patches) => [...texts, applied(texts.at(-1)!, patches)], [session.start]);
  }

  get text(): string {
    return this.texts[this.now]!;
  }

  async run(): Promise<void> {
    while (this.now < this.session.transactions.length) {
      const number = this.now;
      await this.type(this.session.transactions[number]!);
      if (this.session.rests[number]) {
        await this.rest();
      }
    }
    await this.check();
  }

  private async type(patches: Patch[]): Promise<void> {
    let { text } = this;
    for (const patch of patches) {
      const [position, deleted, inserted] = patch;
      this.note(`${this.now}: ${JSON.stringify(patch).slice(0, 200)}, from ${this.place ?? "anywhere"}`);
      await this.goTo(text, position);
      if (deleted > LONGEST_TYPED) {
        await this.window.press(...selecting(text, position, deleted), "Delete");
      } else {
        await this.window.press(...Array<string>(deleted).fill("Delete"));
      }
      text = applied(text, [patch]);
      if (inserted.length > LONGEST_TYPED) {
        await this.paste(inserted, text);
      } else if (inserted.includes("\t")) {
        await this.window.page.keyboard.insertText(inserted);
      } else {
        await this.window.page.keyboard.type(inserted);
      }
      this.place = position + inserted.length;
    }
    this.now += 1;
    this.tell(this.now);
  }

  /** Not by `insertText`, which VS Code takes character by character. */
  private async paste(inserted: string, after: string): Promise<void> {
    await this.window.page.evaluate((copied) => navigator.clipboard.writeText(copied), inserted);
    await this.window.press("Control+V");
    await this.untilText(after);
  }

  private async goTo(text: string, position: number): Promise<void> {
    if (position === this.place) {
      return;
    }
    const lines = text.slice(0, position).split("\n");
    const box = this.window.page.locator(".quick-input-widget");
    await this.window.press("Control+g");
    await box.waitFor();
    await this.window.page.keyboard.insertText(`${lines.length}:${lines.at(-1)!.length + 1}`);
    await this.window.press("Enter");
    await box.waitFor({ state: "hidden" });
  }

  private async rest(): Promise<void> {
    await this.check();
    this.rests += 1;
    const shown = this.shown();
    if (await soon(() => this.shown() > shown, 1500)) {
      await this.decide(CHOICES[this.rests % CHOICES.length]!);
      this.note("decided");
      this.place = undefined;
    }
    await this.check();
  }

  shown(): number {
    return this.window.wire.sent("textDocument/didShowInlineEdit").length;
  }

  private async check(): Promise<void> {
    await this.untilText(this.text);
    this.story = [];
  }

  private async untilText(text: string): Promise<void> {
    const says = (): string => this.window.wire.text(this.window.file);
    await until(`the text after ${this.now} transactions`, () => says() === text, () => this.whatWentWrong(text, says()));
  }

  private note(says: string): void {
    this.story.push({ at: Date.now(), says });
  }

  /** The lines that differ, and what was done and said since the text was right. */
  private whatWentWrong(expected: string, found: string): string {
    const [is, ought] = [found.split("\n"), expected.split("\n")];
    const differs = ought.flatMap((line, number) => (line === is[number] ? [] : [`${number + 1}: ${JSON.stringify([line, is[number]])}`]));
    const since = this.story[0]?.at ?? 0;
    const said = this.window.wire.since(since).filter(({ says }) => !says.includes("inlineCompletion"));
    const events = [...this.story, ...said].sort((one, other) => one.at - other.at);
    return [JSON.stringify(this.done), ...differs.slice(0, 20), ...events.map(({ at, says }) => `${at - since} ms ${says}`)].join("\n");
  }

  private async decide(choice: (typeof CHOICES)[number]): Promise<void> {
    let done: string = choice;
    this.note(choice);
    if (choice === "refuse") {
      await this.window.press("Escape");
    }
    for (let times = { accept: 2, jump: 1, refuse: 0, ignore: 0 }[choice]; times > 0; times -= 1) {
      const cursor = await this.window.cursor();
      this.note(`Tab at ${cursor}`);
      await this.window.press("Tab"); // in the edit's lines, the first applies it
      await until("a jump or the edit", async () => this.hasChanged() || (await this.window.cursor()) !== cursor);
      if (await soon(() => this.hasChanged(), 500)) { // the cursor moves before the server hears of the edit
        done = await this.keepOrUndo();
        break;
      }
    }
    this.done[done] = (this.done[done] ?? 0) + 1;
  }

  private hasChanged(): boolean {
    return this.window.wire.text(this.window.file) !== this.text;
  }

  /** Keep what the session does next, and undo a deletion. */
  private async keepOrUndo(): Promise<string> {
    const { wire, file } = this.window;
    assert.equal(wire.text(file), accepted(this.text, wire.offered()!), "what was offered");
    const ahead = this.texts.slice(this.now, this.now + AHEAD + 1).indexOf(wire.text(file));
    this.note(ahead < 0 ? "undo" : `keep ${ahead}`);
    if (ahead < 0) {
      await this.window.press("Control+z");
      return "undone";
    }
    this.now += ahead;
    this.tell(this.now);
    return "kept";
  }
}

async function soon(holds: () => boolean, patienceMs: number): Promise<boolean> {
  const end = Date.now() + patienceMs;
  while (!holds() && Date.now() < end) {
    await sleep(50);
  }
  return holds();
}

test("the text is what was typed and accepted", async (context: TestContext) => {
  const model = spawn(PYTHON, ["-m", "tests.e2e.recorded_session"], { cwd: ROOT, stdio: ["pipe", "pipe", "inherit"] });
  const [about] = (await once(createInterface(model.stdout), "line")) as [string];
  const session = JSON.parse(about) as Session;
  const scratch = mkdtempSync(path.join(tmpdir(), "midfill-session-"));
  const server = path.join(scratch, "midfill");
  writeFileSync(server, SERVER);
  chmodSync(server, 0o700);
  const workbench = new Workbench(undefined, { E2E_MIDFILL: server, PYTHONPATH: ROOT, MIDFILL_CORE_TOKEN: "secret" });
  let window: Window | undefined;
  try {
    await workbench.start();
    const midfill = { "midfill.nextEditModel": "sweep-b:any", "midfill.nextEditEngine": session.edits };
    workbench.settings(SETTINGS, { "midfill.core": session.completions, ...midfill });
    window = await workbench.openUnready("session.txt", session.start);
    await window.untilStatus(/^midfill/);
    await until("a server", () => window!.wire.sent("midfill/status").length > 0);
    await window.toEnd();
    const user = new User(window, session, (now) => model.stdin.write(`${now}\n`));
    await user.run();
    assert.equal(await window.save(), user.text);
    context.diagnostic(`${session.transactions.length} transactions, ${user.shown()} edits shown, ${JSON.stringify(user.done)}`);
    assert.ok(user.done.kept && user.done.undone, JSON.stringify(user.done));
  } finally {
    await window?.close("session");
    model.kill();
    await workbench.stop();
    rmSync(scratch, { recursive: true });
  }
});
