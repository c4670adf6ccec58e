import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import * as path from "node:path";
import { test } from "node:test";

import { commandIn, findCommand, type Places } from "../src/discovery.ts";
import { scratchFolder, writeScript } from "./scratch.ts";

const NOWHERE: Places = { serverPath: "", environments: [], searchPath: "", ownEnvironment: "/nowhere" };

test("the setting, then the workspace's environments, then PATH, then the extension's own", async (context) => {
  const folder = scratchFolder(context);
  const [given, environment, onPath, own] = ["given", "environment", "path", "own"].map((name) =>
    path.join(folder, name),
  ) as [string, string, string, string];
  writeScript(given);
  writeScript(commandIn(environment));
  writeScript(path.join(onPath, "midfill"));
  writeScript(commandIn(own));
  let places: Places = { serverPath: given, environments: [environment], searchPath: onPath, ownEnvironment: own };
  assert.equal(await findCommand(places, "/home"), given);
  places = { ...places, serverPath: "" };
  assert.equal(await findCommand(places, "/home"), commandIn(environment));
  places = { ...places, environments: [] };
  assert.equal(await findCommand(places, "/home"), path.join(onPath, "midfill"));
  places = { ...places, searchPath: "" };
  assert.equal(await findCommand(places, "/home"), commandIn(own));
  assert.equal(await findCommand(NOWHERE, "/home"), undefined);
});

test("a setting that names nothing is not made up for by another command", async (context) => {
  const folder = scratchFolder(context);
  writeScript(path.join(folder, "midfill"));
  const places = { ...NOWHERE, serverPath: "/nowhere/midfill", searchPath: folder };
  assert.equal(await findCommand(places, "/home"), undefined);
});

test("~ is the user's home", async (context) => {
  const home = scratchFolder(context);
  writeScript(path.join(home, "bin/midfill"));
  const found = await findCommand({ ...NOWHERE, serverPath: "~/bin/midfill" }, home);
  assert.equal(found, path.join(home, "bin/midfill"));
});

test("what cannot be run, and folders relative to the workspace, are passed over", async (context) => {
  const folder = scratchFolder(context);
  writeFileSync(path.join(folder, "midfill"), "", { mode: 0o644 });
  assert.equal(await findCommand({ ...NOWHERE, searchPath: folder }, "/home"), undefined);
  writeScript(path.join(folder, "midfill"));
  const relative = path.relative(process.cwd(), folder);
  assert.equal(await findCommand({ ...NOWHERE, searchPath: relative }, "/home"), undefined);
});
