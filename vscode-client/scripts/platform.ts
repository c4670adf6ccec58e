// Packages the extension for one platform, with the wheels of its own version: npm run platform -- [TARGET | --for-clone]
//
// With --for-clone it is for this machine alone, and uses the clone's own environment.

import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import * as path from "node:path";

/** How the wheels' names end, by VS Code's names of platforms. */
const WHEELS: Record<string, RegExp> = {
  "darwin-arm64": /-macosx_\w+_arm64\.whl$/,
  "darwin-x64": /-macosx_\w+_x86_64\.whl$/,
  "linux-arm64": /linux[\w.]*_aarch64\.whl$/,
  "linux-x64": /linux[\w.]*_x86_64\.whl$/,
  "win32-x64": /-win_amd64\.whl$/,
};

/** The names of midfill's wheel for the platform, and of its models'; an Error if there is not one of each. */
export function wheelsFor(target: string, version: string, names: readonly string[]): string[] {
  const platform = WHEELS[target];
  if (platform === undefined) {
    throw new Error(`unknown target ${target}: choose one of ${Object.keys(WHEELS).join(", ")}`);
  }
  const midfill = names.filter((name) => name.startsWith(`midfill-${version}-`) && platform.test(name));
  const models = names.filter((name) => /^midfill_model(_tiny)?-.*-any\.whl$/.test(name));
  if (midfill.length !== 1 || models.length !== 2) {
    throw new Error(`${target} needs a wheel of midfill ${version} and those of its two models; there are: ${names.join(", ")}`);
  }
  return [...midfill, ...models];
}

/** What the extension is told of the clone that it was built in. */
export function cloneRecord(clone: string, platform: string): string {
  const command = platform === "win32" ? "Scripts/midfill.exe" : "bin/midfill";
  return JSON.stringify({ midfill: path.resolve(clone, ".venv", command) });
}

function main(target: string, forClone: boolean): void {
  const extension = path.dirname(import.meta.dirname);
  const [built, carried] = [path.join(extension, "../dist"), path.join(extension, "dist/wheels")];
  const { version } = JSON.parse(readFileSync(path.join(extension, "package.json"), "utf8")) as { version: string };
  rmSync(carried, { recursive: true, force: true });
  mkdirSync(carried, { recursive: true });
  for (const name of wheelsFor(target, version, readdirSync(built))) {
    copyFileSync(path.join(built, name), path.join(carried, name));
  }
  copyFileSync(path.join(extension, "../constraints.txt"), path.join(carried, "constraints.txt"));
  const record = path.join(extension, "dist/clone.json");
  rmSync(record, { force: true });
  if (forClone) {
    writeFileSync(record, cloneRecord(path.dirname(extension), process.platform));
  }
  const vsce = ["run", "package", "--", "--target", target, "--out", `midfill-${target}.vsix`];
  const done = spawnSync("npm", vsce, { cwd: extension, stdio: "inherit", shell: process.platform === "win32" });
  process.exitCode = done.status ?? 1;
}

if (process.argv[1] === import.meta.filename) {
  const forClone = process.argv[2] === "--for-clone";
  const here = `${process.platform}-${process.arch}`;
  main(forClone ? here : (process.argv[2] ?? here), forClone);
}
