// Installs midfill into an environment of its own: `python -m venv`, then pip.

import { existsSync, readdirSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import * as path from "node:path";
import { pathToFileURL } from "node:url";

import { commandIn, onWindows } from "./discovery.ts";
import { run } from "./processes.ts";

/** The oldest Python that midfill runs on. */
const OLDEST: readonly [number, number] = [3, 11];

/** A failure that the user can act on. */
export class InstallationError extends Error {}

export interface Installation {
  python: string;
  environment: string;
  /** What pip installs, with its options. */
  requirements: readonly string[];
  onStep: (step: string) => void;
  onLine: (line: string) => void;
  signal: AbortSignal;
}

/** Install midfill and return the path of its command; a failure leaves the environment as it was. */
export async function install(installation: Installation): Promise<string> {
  const { environment, onStep, requirements } = installation;
  const before = `${environment}.before`;
  onStep("Creating a Python environment");
  await setAside(environment, before);
  try {
    await mustRun(installation, installation.python, ["-m", "venv", environment]);
    onStep("Installing midfill");
    const pip = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"];
    await mustRun(installation, commandIn(environment, "python"), [...pip, ...requirements]);
  } catch (error) {
    await remove(environment);
    if (existsSync(before)) {
      await rename(before, environment);
    }
    throw error;
  }
  await remove(before).catch(() => undefined); // a core may still run from it: the next installation removes it
  return commandIn(environment);
}

/** Rename the environment; one without the command is of an installation that was broken off, and goes. */
async function setAside(environment: string, before: string): Promise<void> {
  try {
    if (existsSync(commandIn(environment))) {
      await remove(before);
      await rename(environment, before);
    } else {
      await remove(environment);
    }
  } catch (error) {
    const reason = `midfill is in use: stop the core and close other windows. ${String(error)}`;
    throw new InstallationError(reason, { cause: error });
  }
}

async function remove(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
}

export type Engine = "none" | "kernel" | "torch";

/** What pip is to install: requirements that name files alone, and its options. */
export interface Choice {
  /** The folder with the bundled wheels and the tested versions of what they require. */
  carried: string;
  /** What runs models on this machine: nothing, the CPU kernel, or also PyTorch, for GPUs and other models. */
  engine: Engine;
}

/**
 * pip's arguments; InstallationError if this build lacks a wheel. midfill and the distributions of its models are on no
 * package index, so any account could register their names: each is given as a file.
 */
export function requirementsOf({ carried, engine }: Choice): string[] {
  const wheels = existsSync(carried) ? readdirSync(carried).filter((name) => name.endsWith(".whl")) : [];
  const midfill = wheels.find((name) => name.startsWith("midfill-"));
  const models = wheels.filter((name) => name.startsWith("midfill_model"));
  if (midfill === undefined) {
    throw lacking("midfill");
  }
  if (models.length === 0 && engine !== "none") {
    throw lacking("models");
  }
  const source = pathToFileURL(path.join(carried, midfill)).href;
  const tested = ["--constraint", path.join(carried, "constraints.txt")];
  if (engine === "none") {
    return [`midfill @ ${source}`, ...tested];
  }
  const extras = engine === "torch" ? "core,torch" : "core";
  return [`midfill[${extras}] @ ${source}`, ...models.map((model) => path.join(carried, model)), ...tested];
}

function lacking(what: string): InstallationError {
  return new InstallationError(
    `this build of the extension bundles no ${what}: install the .vsix of your platform, or choose a midfill command.`,
  );
}

/** The first interpreter that is recent enough; InstallationError if there is none. */
export async function findPython(candidates: readonly string[]): Promise<string> {
  const common = onWindows ? ["python", "py"] : ["python3", "python", "python3.13", "python3.12", "python3.11"];
  for (const candidate of [...candidates, ...common]) {
    if (await isRecentEnough(candidate)) {
      return candidate;
    }
  }
  throw new InstallationError(
    `midfill needs Python ${OLDEST.join(".")} or newer, which was not found. Install it, then try again.`,
  );
}

async function isRecentEnough(python: string): Promise<boolean> {
  const check = `import sys, venv, ensurepip; sys.exit(sys.version_info < (${OLDEST.join(", ")}))`;
  try {
    return (await run(python, ["-I", "-c", check])) === 0;
  } catch {
    return false; // no such command
  }
}

async function mustRun({ onLine, onStep, signal }: Installation, command: string, args: string[]): Promise<void> {
  let last = "";
  const watch = (line: string): void => {
    onLine(line);
    last = line.trim() || last;
    if (/^(Collecting|Downloading|Building|Installing) /.test(last)) {
      onStep(last.length > 80 ? `${last.slice(0, 79)}…` : last);
    }
  };
  const status = await run(command, args, { onLine: watch, signal });
  if (status !== 0) {
    throw new InstallationError(last || `${command} exited with status ${status}`);
  }
}
