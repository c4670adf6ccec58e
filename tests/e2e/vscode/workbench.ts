// A real VS Code workbench in a headless browser, with the packaged extension, a real language server and core.

import assert from "node:assert/strict";
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";

import { chromium, type Browser, type Page } from "playwright-core";

import { Wire, type Exchange, type Item } from "./wire.ts";

const HERE = import.meta.dirname;
const ROOT = path.resolve(HERE, "../../..");
const CODE_SERVER = path.join(HERE, "node_modules/code-server/out/node/entry.js");
const EXTENSION = path.join(ROOT, "vscode-client/midfill.vsix");

/** Machines that run these tests are often busy with others; what is well takes a tenth of this. */
export const PATIENCE_MS = 60_000;

/** What the status bar says where midfill suggests. */
export const READY = /^midfill$/;

/** A document, and what to type at its end for a suggestion. */
export const TEXT = `def read_text(path):
    with open(path, "r") as file:
        return file.read()


def read_lines(path):
`;
export const OPENING = "    with open(path";

const SETTINGS: Record<string, unknown> = {
  "chat.disableAIFeatures": true,
  "editor.autoClosingBrackets": "never",
  "editor.autoClosingQuotes": "never",
  "editor.autoSurround": "never",
  "editor.inlineSuggest.syntaxHighlightingEnabled": false,
  "editor.minimap.enabled": false,
  "editor.quickSuggestions": { other: "off" },
  "extensions.ignoreRecommendations": true,
  "files.autoSave": "off",
  "git.enabled": false,
  "midfill.holdBackPercent": 0, // the tiny model is seldom sure
  "midfill.shortenUnlikely": false, // and tests want more than a word
  "terminal.integrated.gpuAcceleration": "off", // text that tests can read
  "security.workspace.trust.enabled": false,
  "workbench.editor.useModal": "off",
  "workbench.secondarySideBar.defaultVisibility": "hidden",
  "workbench.startupEditor": "none",
  "workbench.tips.enabled": false,
};

/** The server's machine has its own; the user's are the browser's. */
const MACHINE_SETTINGS: Record<string, unknown> = {
  "midfill.serverPath": path.join(HERE, "midfill-tapped.mjs"),
};

const STATUS_ITEM = '[id="midfill.midfill.status"]';

const KEYBINDINGS = [
  { key: "ctrl+alt+space", command: "editor.action.triggerSuggest" },
  { key: "ctrl+down", command: "editor.action.inlineSuggest.acceptNextLine", when: "inlineSuggestionVisible" },
];

export class Workbench {
  private readonly scratch = mkdtempSync(path.join(tmpdir(), "midfill-vscode-"));
  private windows = 0;
  private port = 0;
  private process: ChildProcess | undefined;
  private browser: Browser | undefined;
  private readonly extension: string;
  private readonly variables: NodeJS.ProcessEnv;

  /** With this extension, a .vsix, and these environment variables besides the usual ones. */
  constructor(extension = EXTENSION, variables: NodeJS.ProcessEnv = {}) {
    this.extension = extension;
    this.variables = variables;
  }

  async start(): Promise<void> {
    this.settings({});
    writeFileSync(path.join(this.folder("data/User"), "keybindings.json"), JSON.stringify(KEYBINDINGS));
    this.codeServer(["--install-extension", this.extension]);
    this.port = await freePort();
    const log = path.join(this.scratch, "code-server.log");
    const flags = ["--auth", "none", "--bind-addr", `127.0.0.1:${this.port}`, "--disable-telemetry"];
    const more = ["--disable-update-check", "--disable-workspace-trust", "--reconnection-grace-time", "1"];
    this.process = spawn(process.execPath, [CODE_SERVER, ...flags, ...more, ...this.flags()], {
      env: this.environment(),
      detached: true, // a process group, which ends as one
      stdio: "ignore",
    });
    this.browser = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: [
        ...["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"],
        ...["--disable-background-networking", "--disable-component-update"],
      ],
    });
    await until(`code-server (${log})`, () => this.healthy());
  }

  async stop(): Promise<void> {
    await this.browser?.close();
    const server = this.process;
    if (server?.pid !== undefined && server.exitCode === null && server.signalCode === null) {
      const ended = once(server, "exit", { signal: AbortSignal.timeout(PATIENCE_MS) });
      process.kill(-server.pid, "SIGTERM");
      await ended;
    }
    this.cores().forEach((pid) => process.kill(pid, "SIGKILL"));
    rmSync(this.scratch, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  /** Lay these over the user's settings and the machine's, for windows that are opened from now on. */
  settings(user: Record<string, unknown>, machine: Record<string, unknown> = {}): void {
    const [userFile, machineFile] = ["User", "Machine"].map((name) =>
      path.join(this.folder(`data/${name}`), "settings.json"),
    );
    writeFileSync(userFile!, JSON.stringify({ ...SETTINGS, ...user }));
    writeFileSync(machineFile!, JSON.stringify({ ...MACHINE_SETTINGS, ...machine }));
  }

  /** Open a file of this text in a window and a folder of its own, its cursor at the end, and wait for the model. */
  async open(name: string, text: string, userAgent?: string): Promise<Window> {
    const window = await this.openUnready(name, text, userAgent);
    await window.untilStatus(READY);
    await window.toEnd();
    return window;
  }

  /** The same, but wait for nothing; `beside` are further files of the folder, by their names. */
  async openUnready(name: string, text: string, userAgent?: string, beside: Record<string, string> = {}): Promise<Window> {
    const project = this.folder(`project-${++this.windows}`);
    const file = path.join(project, name);
    for (const [other, content] of Object.entries({ ...beside, [name]: text })) {
      writeFileSync(path.join(project, other), content);
    }
    const page = await this.browser!.newPage({
      viewport: { width: 1100, height: 620 },
      permissions: ["clipboard-read", "clipboard-write"],
      ...(userAgent !== undefined && { userAgent }),
    });
    page.setDefaultTimeout(PATIENCE_MS);
    await page.route(
      (url) => url.hostname !== "127.0.0.1",
      (route) => route.abort(),
    );
    const payload = JSON.stringify([["openFile", `vscode-remote://127.0.0.1:${this.port}${file}`]]);
    await page.goto(`http://127.0.0.1:${this.port}/?folder=${project}&payload=${encodeURIComponent(payload)}`);
    await page.locator(`.monaco-editor[data-uri$="${name}"] .view-line`).first().waitFor({ timeout: PATIENCE_MS });
    return new Window(page, file, new Wire(this.folder("wire"), project));
  }

  /** The process ids of the cores that are published. */
  cores(): number[] {
    const runtime = this.folder("runtime");
    const files = readdirSync(runtime).filter((file) => /^core-.*\.json$/.test(file));
    return files.map((file) => (JSON.parse(readFileSync(path.join(runtime, file), "utf8")) as { pid: number }).pid);
  }

  /** The counts that the language servers have saved, of all windows; only numbers. */
  statistics(): Record<string, number> {
    const shown = spawnSync(path.join(ROOT, ".venv/bin/midfill"), ["stats", "--json"], { env: this.environment() });
    return JSON.parse(String(shown.stdout)) as Record<string, number>;
  }

  private codeServer(args: string[]): void {
    const done = spawnSync(process.execPath, [CODE_SERVER, ...this.flags(), ...args], {
      env: this.environment(),
      timeout: 2 * PATIENCE_MS,
    });
    if (done.status !== 0) {
      throw new Error(`code-server ${args.join(" ")}: ${String(done.stdout)}${String(done.stderr)}`);
    }
  }

  private flags(): string[] {
    const config = path.join(this.scratch, "config.yaml");
    if (!existsSync(config)) {
      writeFileSync(config, "");
    }
    const folders = ["--user-data-dir", this.folder("data"), "--extensions-dir", this.folder("extensions")];
    return ["--config", config, ...folders];
  }

  private environment(): NodeJS.ProcessEnv {
    return {
      ...process.env,
      PATH: [path.dirname(process.execPath), process.env.PATH].join(path.delimiter),
      XDG_CONFIG_HOME: this.folder("xdg/config"),
      XDG_DATA_HOME: this.folder("xdg/data"),
      XDG_CACHE_HOME: this.folder("xdg/cache"),
      XDG_STATE_HOME: this.folder("xdg/state"),
      E2E_MIDFILL: path.join(ROOT, ".venv/bin/midfill"),
      E2E_WIRE: this.folder("wire"),
      MIDFILL_RUNTIME_DIR: this.folder("runtime"),
      MIDFILL_MODEL: "tiny",
      MIDFILL_PREPARE_AHEAD: "always", // opening a file loads the model
      MIDFILL_EXIT_AFTER_S: "60", // where a run is broken off
      ...this.variables,
    };
  }

  private folder(name: string): string {
    const folder = path.join(this.scratch, name);
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    return folder;
  }

  private async healthy(): Promise<boolean> {
    try {
      return (await fetch(`http://127.0.0.1:${this.port}/healthz`)).ok;
    } catch {
      return false;
    }
  }
}

/** One window of the workbench, with a file open in it. */
export class Window {
  readonly page: Page;
  readonly file: string;
  readonly wire: Wire;

  constructor(page: Page, file: string, wire: Wire) {
    this.page = page;
    this.file = file;
    this.wire = wire;
  }

  /** Wait for the status bar to say it. */
  async untilStatus(expected: RegExp, patienceMs = PATIENCE_MS): Promise<void> {
    let status = "";
    await until(
      `status ${String(expected)}`,
      async () => expected.test((status = await this.status())),
      () => status,
      patienceMs,
    );
  }

  async status(): Promise<string> {
    const item = this.page.locator(STATUS_ITEM);
    return (await item.count()) === 0 ? "" : ((await item.first().textContent()) ?? "").trim();
  }

  /** Wait for the tooltip of the status bar item to hold this. */
  async untilReason(expected: string): Promise<void> {
    await this.page.locator(STATUS_ITEM).first().hover();
    await this.page.locator(".workbench-hover", { hasText: expected }).first().waitFor({ timeout: PATIENCE_MS });
  }

  /** Put the cursor behind the file's last character. */
  async toEnd(): Promise<void> {
    await this.page.bringToFront();
    await this.page.locator(`.monaco-editor[data-uri$="${path.basename(this.file)}"] .view-lines`).click();
    await this.press("Control+End");
  }

  /** Run a command by its title. */
  async command(title: string): Promise<void> {
    await this.press("F1");
    await this.page.keyboard.insertText(`>${title}`);
    await this.page.locator(".quick-input-list .monaco-list-row.focused", { hasText: title }).waitFor();
    await this.press("Enter");
  }

  /** Change the user's settings as a user would, then go back to the end of the file; files that change by themselves are not watched here. */
  async changeSettings(changed: Record<string, unknown>): Promise<void> {
    await this.command("Preferences: Open User Settings (JSON)");
    await this.page.locator('.monaco-editor[data-uri$="settings.json"] .view-lines').click();
    await this.press("Control+A");
    await this.page.keyboard.insertText(JSON.stringify({ ...SETTINGS, ...changed }));
    await this.press("Control+S");
    await this.page.locator(".tab.active:not(.dirty)", { hasText: "settings.json" }).waitFor();
    await this.page.locator(".tab", { hasText: path.basename(this.file) }).click();
    await this.toEnd();
  }

  /** The keys that VS Code and its extensions set on the system that the browser says it is on. */
  async defaultKeys(mac: boolean): Promise<{ key: string; command: string }[]> {
    const modifier = mac ? "Meta" : "Control";
    await this.page.evaluate(() => navigator.clipboard.writeText(""));
    await this.command("Preferences: Open Default Keyboard Shortcuts (JSON)");
    await this.page.locator('.monaco-editor[data-uri*="keybindings"] .view-lines').click();
    await this.press(`${modifier}+A`, "Control+C"); // copying is the browser's affair, which knows where it runs
    let text = "";
    await until("the keys", async () => {
      text = await this.page.evaluate(() => navigator.clipboard.readText());
      return text.includes('"key"');
    });
    const list = text.slice(text.indexOf("["), text.lastIndexOf("]") + 1);
    return JSON.parse(list.replaceAll(/^\s*\/\/.*$/gm, "")) as { key: string; command: string }[];
  }

  /** Choose an entry of the menu behind the status bar item. */
  async choose(label: string): Promise<void> {
    await this.page.locator(STATUS_ITEM).first().click();
    await this.untilMenu();
    await this.page.keyboard.insertText(label); // entries out of view are not in the page
    await this.pick(label);
  }

  /** Choose an entry of the list of the core, which the menu has. */
  async chooseOfCore(label: string): Promise<void> {
    await this.choose("Manage the core…");
    await this.page.locator(".quick-input-title", { hasText: /^Core: / }).waitFor();
    await this.pick(label);
  }

  /** Wait for the menu to be shown, and to take keys; the list of commands has no title. */
  async untilMenu(): Promise<void> {
    await this.page.locator(".quick-input-title", { hasText: /^midfill$/ }).waitFor();
    await this.page.locator(".quick-input-list .monaco-list-row.focused").first().waitFor();
  }

  /** Dismiss the menu: one that is still shown would take the keys that are meant for the next. */
  async dismissMenu(): Promise<void> {
    await this.press("Escape");
    await this.page.locator(".quick-input-widget").waitFor({ state: "hidden" });
  }

  /** Pick an entry of the list that is shown. */
  async pick(label: string): Promise<void> {
    const exactly = new RegExp(label.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")); // case counts, other than with text
    await this.page.locator(".quick-input-list .monaco-list-row", { has: this.page.locator(".label-name", { hasText: exactly }) }).first().click();
  }

  /** Wait for this text in a list or in a notification. */
  async untilText(expected: RegExp): Promise<void> {
    const shown = this.page.locator(".quick-input-list .monaco-list-row, .notification-list-item-message");
    await shown.filter({ hasText: expected }).first().waitFor({ timeout: PATIENCE_MS });
  }

  async type(text: string): Promise<void> {
    await this.page.keyboard.type(text, { delay: 30 });
  }

  async press(...keys: string[]): Promise<void> {
    for (const key of keys) {
      await this.page.keyboard.press(key);
    }
  }

  /** The ghost text as it is shown, without blank lines; empty where there is none. */
  async ghost(): Promise<string> {
    const shown = await this.page.evaluate(() => {
      const first = [...document.querySelectorAll(".ghost-text-decoration")].map((span) => span.textContent);
      // Long lines are several spans of one element.
      const later = new Set([...document.querySelectorAll(".ghost-text")].map((span) => span.parentElement));
      return [first.join(""), ...[...later].map((line) => line?.textContent ?? "")];
    });
    return visible(shown.join("\n").replaceAll("\u00a0", " "));
  }

  /** The texts that are shown beside the document's, from above to below. */
  async decorations(): Promise<string[]> {
    const found = await this.page.evaluate(() => {
      const spans = [...document.querySelectorAll(".view-line span")].map((span) => {
        const { content } = getComputedStyle(span, "::after");
        const { top, left } = span.getBoundingClientRect();
        return { top, left, text: content.startsWith('"') ? content.slice(1, -1) : "" };
      });
      return spans.filter(({ text }) => text !== "").sort((one, other) => one.top - other.top || one.left - other.left);
    });
    return found.map(({ text }) => text.replaceAll("\u00a0", " "));
  }

  /** Where the status bar says that the cursor is. */
  async cursor(): Promise<string> {
    return (await this.page.locator('[id="status.editor.selection"]').textContent()) ?? "";
  }

  /** Wait for the newest answer to be the one that is shown, and not empty. */
  async untilSuggestion(): Promise<Item> {
    let shown = "";
    await until(
      "a suggestion",
      async () => {
        shown = await this.ghost();
        const item = this.newest()?.items[0];
        return shown !== "" && item !== undefined && ghostsOf(item, shown) === ghostsOf(item, visible(item.insertText));
      },
      () =>
        `shown ${JSON.stringify(shown)}, asked ${this.wire.sent("textDocument/inlineCompletion").length}, ` +
        `answered ${JSON.stringify(this.newest())}`,
    );
    return this.newest()!.items[0]!;
  }

  /** Wait for what can be seen of this text to be shown. */
  async untilGhost(expected: string): Promise<void> {
    let shown = "";
    await until(
      `ghost text ${JSON.stringify(expected)}`,
      async () => (shown = await this.ghost()) === visible(expected),
      () => JSON.stringify(shown),
    );
  }

  /** Wait for something else to be shown than this suggestion. */
  async untilGhostIsNot(before: string): Promise<void> {
    await until("other ghost text, or none", async () => (await this.ghost()) !== visible(before));
  }

  /** Accept a part of the suggestion that is shown at the end of the file, by this key: the part. The rest stays. */
  async acceptPart(key: string, suggestion: string): Promise<string> {
    const before = this.wire.text(this.file);
    await this.press(key);
    await until("a part to be accepted", () => this.wire.text(this.file) !== before);
    const after = this.wire.text(this.file);
    const part = after.slice(before.length);
    assert.ok(after.startsWith(before) && suggestion.startsWith(part), part);
    if (part !== suggestion) {
      await this.untilGhost(suggestion.slice(part.length));
    }
    return part;
  }

  /** Put this text in place of all that is there: the answer to a request at its end. */
  async replaceText(text: string): Promise<Exchange> {
    const before = this.wire.exchanges().length;
    await this.press("Control+A");
    await this.page.keyboard.insertText(text.slice(0, -1));
    await this.type(text.slice(-1));
    const lines = text.split("\n");
    const end = { line: lines.length - 1, character: lines.at(-1)!.length };
    await until(
      "an answer",
      () => isDeepStrictEqual(this.wire.exchanges().slice(before).at(-1)?.position, end),
      () => `${JSON.stringify(end)}, answered ${JSON.stringify(this.wire.exchanges().slice(before))}`,
    );
    return this.newest()!;
  }

  /** The last exchange. */
  newest(): Exchange | undefined {
    return this.wire.exchanges().at(-1);
  }

  async save(): Promise<string> {
    await this.press("Control+S");
    await this.page.locator(".tab.active:not(.dirty)").first().waitFor({ timeout: PATIENCE_MS });
    return readFileSync(this.file, "utf8");
  }

  /** Close the window; what it showed last is kept as a picture, where a folder for them is given. */
  async close(name: string): Promise<void> {
    await this.picture(name);
    await this.page.close();
  }

  /** Keep what is shown as a picture, where a folder for them is given. */
  async picture(name: string): Promise<void> {
    const folder = process.env.E2E_SCREENSHOTS;
    if (folder !== undefined) {
      await this.page.screenshot({ path: path.join(folder, `${name.replaceAll(/\W+/g, "-")}.png`) });
    }
  }
}

/** What of a text can be seen in the editor. */
export function visible(text: string): string {
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  return lines.join("\n");
}

/** Of a text of this item, what is ghost text: the brackets that the item replaces by the same stand there already. */
function ghostsOf({ range }: Item, text: string): string {
  return range.start.character === range.end.character ? text : text.replaceAll(/[)\]}]/g, "");
}

export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  instead: () => string = () => "",
  patienceMs = PATIENCE_MS,
): Promise<void> {
  const end = Date.now() + patienceMs;
  while (!(await holds())) {
    if (Date.now() > end) {
      throw new Error(`waited in vain for ${what}: ${instead()}`);
    }
    await sleep(50);
  }
}

async function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => {
        resolve(typeof address === "object" && address !== null ? address.port : 0);
      });
    });
  });
}
