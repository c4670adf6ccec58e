// Folders and commands that a test may fill as it likes.

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import type { TestContext } from "node:test";

/** A folder that is gone after the test. */
export function scratchFolder(context: TestContext): string {
  const folder = mkdtempSync(path.join(tmpdir(), "midfill-test-"));
  context.after(() => {
    rmSync(folder, { recursive: true, force: true });
  });
  return folder;
}

/** Write a shell script that can be run. */
export function writeScript(file: string, ...lines: string[]): string {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, ["#!/bin/sh", ...lines, ""].join("\n"));
  chmodSync(file, 0o755);
  return file;
}
