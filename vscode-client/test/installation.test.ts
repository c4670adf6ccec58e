import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import * as path from "node:path";
import { test } from "node:test";

import { cloneRecord, wheelsFor } from "../scripts/platform.ts";
import { commandIn, commandOfClone } from "../src/discovery.ts";
import { findPython, install, InstallationError, requirementsOf, type Installation } from "../src/installation.ts";
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
    requirements: ["/midfill.whl"],
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
    requirements: ["/other.whl"],
    onStep: (step) => steps.push(step),
  });
  assert.equal(await install(wanted), commandIn(wanted.environment));
  assert.ok(existsSync(commandIn(wanted.environment)));
  assert.deepEqual(steps, [
    "Creating a Python environment",
    "Installing midfill",
    "Collecting /other.whl",
  ]);
});

test("a failure is told in pip's last words, and leaves nothing behind", async (context) => {
  const folder = scratchFolder(context);
  const wanted = installation(folder, { python: python(folder, "echo 'ERROR: no space left'; exit 1") });
  await assert.rejects(install(wanted), new InstallationError("ERROR: no space left"));
  assert.ok(!existsSync(wanted.environment));
});

test("an earlier installation is replaced, but stays if the new one fails or is broken off", async (context) => {
  const folder = scratchFolder(context);
  const wanted = installation(folder, { python: python(folder, 'cp "$0" "$(dirname "$0")/midfill"') });
  const command = writeScript(commandIn(wanted.environment), "# the earlier one");
  const earlier = readFileSync(command, "utf8");
  const breaking = AbortSignal.abort(new Error("broken off"));
  await assert.rejects(install({ ...wanted, signal: breaking }), /broken off/);
  assert.equal(readFileSync(command, "utf8"), earlier);
  await assert.rejects(install({ ...wanted, python: "/nowhere" }));
  assert.equal(readFileSync(command, "utf8"), earlier);
  await install(wanted);
  assert.notEqual(readFileSync(command, "utf8"), earlier);
  assert.ok(!existsSync(`${wanted.environment}.before`));
});

test("what a broken installation left is replaced, and the one before it is back after a failure", async (context) => {
  const folder = scratchFolder(context);
  const wanted = installation(folder, {});
  writeScript(path.join(wanted.environment, "half"));
  writeScript(commandIn(`${wanted.environment}.before`));
  await assert.rejects(install(wanted));
  assert.ok(existsSync(commandIn(wanted.environment)));
  assert.ok(!existsSync(path.join(wanted.environment, "half")));
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

const MODELS = ["midfill_model-0.2.0-py3-none-any.whl", "midfill_model_tiny-0.1.0-py3-none-any.whl"];

/** The folder of wheels in an installed extension. */
function carriedIn(folder: string): string {
  for (const name of ["midfill-0.1.0-py3-none-any.whl", ...MODELS, "constraints.txt"]) {
    writeFileSync(path.join(folder, name), "");
  }
  return folder;
}

test("the bundled wheels are installed by their files, in the tested versions of what they require", (context) => {
  const carried = carriedIn(scratchFolder(context));
  const wheel = `file://${carried}/midfill-0.1.0-py3-none-any.whl`;
  const models = MODELS.map((model) => `${carried}/${model}`);
  const tested = ["--constraint", `${carried}/constraints.txt`];
  assert.deepEqual(requirementsOf({ carried, engine: "torch" }), [`midfill[core,torch] @ ${wheel}`, ...models, ...tested]);
  assert.deepEqual(requirementsOf({ carried, engine: "kernel" }), [`midfill[core] @ ${wheel}`, ...models, ...tested]);
  assert.deepEqual(requirementsOf({ carried, engine: "none" }), [`midfill @ ${wheel}`, ...tested]);
});

test("a build without wheels says so", (context) => {
  assert.throws(() => requirementsOf({ carried: "/nowhere", engine: "kernel" }), /bundles no midfill/);
  const carried = scratchFolder(context);
  writeFileSync(path.join(carried, "midfill-0.1.0-py3-none-any.whl"), "");
  assert.throws(() => requirementsOf({ carried, engine: "kernel" }), /bundles no models/);
});

test("a platform's package carries its own wheels, of its own version", () => {
  const names = [
    ...["manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx_11_0_arm64", "macosx_10_13_x86_64", "win_amd64"].map(
      (platform) => `midfill-0.1.0-py3-none-${platform}.whl`,
    ),
    ...MODELS,
    "midfill-0.1.0.tar.gz",
  ];
  const targets = ["linux-x64", "linux-arm64", "darwin-arm64", "darwin-x64", "win32-x64"];
  targets.forEach((target, index) => {
    assert.deepEqual(wheelsFor(target, "0.1.0", names), [names[index], ...MODELS]);
  });
  assert.throws(() => wheelsFor("linux-x64", "0.2.0", names), /needs a wheel of midfill 0\.2\.0/);
  assert.throws(() => wheelsFor("alpine-x64", "0.1.0", names), /unknown target alpine-x64/);
});

test("an extension that is packaged in a clone finds the clone's own environment", async (context) => {
  const clone = scratchFolder(context);
  const command = writeScript(commandIn(path.join(clone, ".venv")));
  const record = path.join(clone, "clone.json");
  writeFileSync(record, cloneRecord(clone, process.platform));
  assert.equal(await commandOfClone(record), command);
});
