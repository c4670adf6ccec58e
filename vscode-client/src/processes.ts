// Runs a command, reports its output line by line, and can abort it.

import { spawn } from "node:child_process";
import { homedir } from "node:os";
import { createInterface } from "node:readline";

import { onWindows } from "./discovery.ts";

export interface RunOptions {
  environment?: Record<string, string>;
  onLine?: (line: string) => void;
  signal?: AbortSignal;
}

/** The exit status; rejects if the command cannot be started, or with the signal's reason once it is aborted. */
export async function run(command: string, args: readonly string[], options: RunOptions = {}): Promise<number> {
  const { environment = {}, onLine = () => undefined, signal } = options;
  signal?.throwIfAborted();
  const child = spawn(command, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, PYTHONUNBUFFERED: "1", PYTHONUTF8: "1", ...environment },
    detached: !onWindows, // a process group, so that the command's children end with it
    windowsHide: true,
    cwd: homedir(), // `python -m` finds the modules of its folder first, and the editor's may be a project's
  });
  const end = (): void => {
    if (child.pid !== undefined) {
      endTree(child.pid);
    }
  };
  signal?.addEventListener("abort", end);
  createInterface(child.stdout).on("line", onLine);
  createInterface(child.stderr).on("line", onLine);
  try {
    const status = await new Promise<number>((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code) => {
        resolve(code ?? 1);
      });
    });
    signal?.throwIfAborted();
    return status;
  } finally {
    signal?.removeEventListener("abort", end);
  }
}

function endTree(pid: number): void {
  if (onWindows) {
    spawn("taskkill", ["/pid", String(pid), "/t", "/f"], { stdio: "ignore", windowsHide: true });
    return;
  }
  try {
    process.kill(-pid, "SIGTERM");
  } catch {
    // It has already exited.
  }
}
