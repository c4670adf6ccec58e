// A real `midfill play` and core, in a scratch home, and pages in headless Chromium that reach nothing but loopback.

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { createInterface } from "node:readline";

import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";

const COMMAND = process.env.TEST_MIDFILL ?? path.resolve("../.venv/bin/midfill"); // the tests run in web/
const SCREENSHOTS = process.env.PAGES_SCREENSHOTS;

/** Machines that run these tests are often busy with others; what is well takes a tenth of this. */
export const PATIENCE_MS = 90_000;

export class Midfill {
  readonly #scratch = mkdtempSync(path.join(tmpdir(), "midfill-pages-"));
  readonly #environment: Record<string, string> & { MIDFILL_RUNTIME_DIR: string };
  readonly problems: string[] = []; // what the pages report, and addresses elsewhere that they request
  #play: ChildProcess | undefined;
  #browser: Browser | undefined;
  url = "";

  constructor(model = "tiny") {
    this.#environment = {
      PATH: process.env.PATH ?? "",
      HOME: this.#scratch,
      MIDFILL_RUNTIME_DIR: path.join(this.#scratch, "run"),
      MIDFILL_MODEL: model,
      MIDFILL_CACHE_DIR: path.join(this.#scratch, "cache"),
      MIDFILL_HOLD_BACK_PERCENT: "0", // the tiny model is seldom sure
      MIDFILL_EXIT_AFTER_S: "120",
    };
  }

  async start(): Promise<void> {
    mkdirSync(this.#environment.MIDFILL_RUNTIME_DIR, { mode: 0o700 });
    this.#play = spawn(COMMAND, ["play", "--no-browser"], { env: this.#environment, stdio: ["ignore", "pipe", "inherit"] });
    const { stdout } = this.#play;
    if (stdout === null) {
      throw new Error("the playground has no output");
    }
    for await (const line of createInterface({ input: stdout, signal: AbortSignal.timeout(PATIENCE_MS) })) {
      this.url = line;
      break;
    }
    if (this.url === "") {
      throw new Error("midfill play has printed no address");
    }
    this.#browser = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"],
    });
  }

  /** A page in a browser of its own, without what others have stored. */
  async open(url: string, options: Parameters<Browser["newContext"]>[0] = {}): Promise<Page> {
    if (this.#browser === undefined) {
      throw new Error("the browser is not started");
    }
    const context = await this.#browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
    context.setDefaultTimeout(PATIENCE_MS);
    await this.#watch(context);
    const page = await context.newPage();
    await page.goto(url);
    return page;
  }

  /** What a subcommand prints. */
  run(...command: string[]): string {
    return execFileSync(COMMAND, command, { env: this.#environment, encoding: "utf8", timeout: PATIENCE_MS }).trim();
  }

  async stop(): Promise<void> {
    await this.#browser?.close();
    const play = this.#play;
    if (play?.exitCode === null && play.signalCode === null) {
      const ended = once(play, "exit", { signal: AbortSignal.timeout(PATIENCE_MS) });
      play.kill("SIGINT");
      await ended;
    }
    this.run("core", "stop");
    rmSync(this.#scratch, { recursive: true, force: true });
  }

  async #watch(context: BrowserContext): Promise<void> {
    await context.route("**", async (route) => {
      const { hostname } = new URL(route.request().url());
      if (hostname === "127.0.0.1") {
        await route.continue();
      } else {
        this.problems.push(`requested ${route.request().url()}`);
        await route.abort();
      }
    });
    context.on("weberror", (error) => this.problems.push(String(error.error())));
    context.on("console", (message) => {
      if (message.type() === "error") {
        this.problems.push(message.text());
      }
    });
  }
}

/** Take a picture, if pictures are wanted. */
export async function picture(page: Page, name: string): Promise<void> {
  if (SCREENSHOTS !== undefined) {
    await page.screenshot({ path: path.join(SCREENSHOTS, `${name}.png`), fullPage: true });
  }
}
