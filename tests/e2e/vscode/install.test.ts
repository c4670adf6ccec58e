// From nothing to ghost text: the .vsix of this platform, by its Install button, in a clean home. E2E_VSIX names that file.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { test } from "node:test";

import { OPENING, READY, TEXT, until, Workbench, type Window } from "./workbench.ts";

const VSIX = process.env.E2E_VSIX;
const INSTALLATION_MS = 5 * 60_000

/** Type, key by key, until there is ghost text. */
async function typeUntilGhost(window: Window): Promise<void> {
  await window.toEnd();
  await window.type(OPENING);
  await until("ghost text", async () => (await window.ghost()) !== "");
}

test("the bundled midfill is installed by a button", { skip: VSIX === undefined }, async () => {
  const home = mkdtempSync(path.join(tmpdir(), "midfill-home-"));
  const workbench = new Workbench(VSIX, { HOME: home, MIDFILL_MODEL: "bundled" });
  let began = Date.now();
  const tell = (step: string): void => {
    console.log(`${((Date.now() - began) / 1000).toFixed(1)} s: ${step}`); // at once, unlike a diagnostic
    began = Date.now();
  };
  try {
    await workbench.start();
    workbench.settings({}, { "midfill.serverPath": "" });
    tell("the extension is installed, and VS Code runs");
    const first = await workbench.openUnready("first.py", TEXT);
    await first.page.locator(".notification-toast", { hasText: "found no midfill command" }).waitFor();
    tell("a file is open; the extension offers to install midfill");
    await first.page.getByRole("button", { name: "Install", exact: true }).click();
    await first.untilStatus(READY, INSTALLATION_MS);
    await first.picture("installed");
    tell("midfill is installed, and its model loaded");
    await typeUntilGhost(first);
    tell(`ghost text, after ${OPENING.length} keys`);
    await first.close("from nothing");
    const cores = workbench.cores();
    assert.equal(cores.length, 1);
    cores.forEach((pid) => process.kill(pid, "SIGKILL"));
    began = Date.now();
    const second = await workbench.openUnready("second.py", TEXT);
    try {
      await typeUntilGhost(second);
      tell("ghost text in a new window, whose core had to start");
    } finally {
      await second.close("once more");
    }
  } finally {
    await workbench.stop();
    rmSync(home, { recursive: true, force: true });
  }
});
