import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import * as path from "node:path";
import { test } from "node:test";

import { commandIn } from "../src/discovery.ts";
import { findPython, install, InstallationError, sourceOf, type Installation } from "../src/installation.ts";
import { scratchFolder, writeScript } from "./scratch.ts";

/** A fake Python; the pip of its environments runs the script `pip`. */
function python(folder: string, ...pip: string[]): string {
  const script = path.join(folder, "pip.sh");
  writeScript(script, ...pip);
  return writeScript(path.join(folder, "python"), `mkdir -p "$3/bin" && cp ${script} "$3/bin/python"`);
}

function installation(folder: string, more: Partial<Installation>): Installation {
  return {
    python: "/nowhere",
    environment: path.join(folder, "environment"),
    source: "/midfill.tar.gz",
    onStep: () => undefined,
    onLine: () => undefined,
    signal: new AbortController().signal,
    ...more,
  };
}

test("an environment is made, and midfill installed into it, step by step", async (context) => {
  const folder = scratchFolder(context);
  const steps: string[] = [];
  const pip = ['echo "Collecting $8"', 'cp "$0" "$(dirname "$0")/midfill"'];
  const wanted = installation(folder, {
    python: python(folder, ...pip),
    source: "/other.whl",
    onStep: (step) => steps.push(step),
  });
  assert.equal(await install(wanted), commandIn(wanted.environment));
  assert.ok(existsSync(commandIn(wanted.environment)));
  assert.deepEqual(steps, [
    "Creating a Python environment",
    "Installing /other.whl",
    "Collecting /other.whl",
  ]);
});

test("a failure is told in pip's last words, and leaves nothing behind", async (context) => {
  const folder = scratchFolder(context);
  const wanted = installation(folder, { python: python(folder, "echo 'ERROR: no space left'; exit 1") });
  await assert.rejects(install(wanted), new InstallationError("ERROR: no space left"));
  assert.ok(!existsSync(wanted.environment));
});

test("breaking off leaves nothing behind", async (context) => {
  const folder = scratchFolder(context);
  const breaking = new AbortController();
  const wanted = installation(folder, {
    python: python(folder, "echo started; sleep 60"),
    signal: breaking.signal,
    onLine: () => {
      breaking.abort(new Error("broken off"));
    },
  });
  await assert.rejects(install(wanted), /broken off/);
  assert.ok(!existsSync(wanted.environment));
});

test("a Python that is too old, or none at all, is passed over", async (context) => {
  const folder = scratchFolder(context);
  const old = writeScript(path.join(folder, "old"), "exit 1");
  const recent = writeScript(path.join(folder, "recent"), "exit 0");
  assert.equal(await findPython(["/nowhere", old, recent]), recent);
});

test("what the extension carries is installed, or what the user's path or URL names", () => {
  const carried = "/extension/dist/midfill.tar.gz";
  assert.equal(sourceOf("", carried, "/home"), carried);
  assert.equal(sourceOf("~/midfill", carried, "/home"), "/home/midfill");
  for (const given of ["/clone", "https://host/midfill.whl", "git+https://host/midfill", "git+ssh://host/midfill"]) {
    assert.equal(sourceOf(given, carried, "/home"), given);
  }
});

test("a package's name is refused: any account may own it on an index", () => {
  for (const given of ["midfill", "midfill==0.1.0", "midfill[gpu]", "./midfill", "--index-url=https://host", "-e /clone"]) {
    assert.throws(() => sourceOf(given, "/carried", "/home"), InstallationError);
  }
});
