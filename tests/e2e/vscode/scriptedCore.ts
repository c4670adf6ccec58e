// A core that does what a test says: `tests/e2e/scripted_core.py` in a process of its own.

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import * as path from "node:path";
import { createInterface } from "node:readline";

const ROOT = path.resolve(import.meta.dirname, "../../..");

export class ScriptedCore {
  readonly url: string;
  private readonly process: ChildProcess;

  private constructor(process: ChildProcess, url: string) {
    this.process = process;
    this.url = url;
  }

  static async start(): Promise<ScriptedCore> {
    const python = path.join(ROOT, ".venv/bin/python");
    const child = spawn(python, ["-m", "tests.e2e.scripted_core"], { cwd: ROOT, stdio: ["pipe", "pipe", "inherit"] });
    const [url] = (await once(createInterface(child.stdout), "line")) as [string];
    return new ScriptedCore(child, url);
  }

  /** What it is to do, as the module describes it. */
  do(command: object): void {
    this.process.stdin!.write(`${JSON.stringify(command)}\n`);
  }

  stop(): void {
    this.process.kill("SIGKILL");
  }
}
