import assert from "node:assert/strict";
import { chmodSync, writeFileSync } from "node:fs";
import * as path from "node:path";
import { test } from "node:test";

import { commandIn, commandOfClone, findCommand, type Places } from "../src/discovery.ts";
import { scratchFolder, writeScript } from "./scratch.ts";

const NOWHERE: Places = { serverPath: "", environments: [], clone: undefined, searchPath: "", ownEnvironment: "/nowhere" };

test("the setting, the workspace's environments, the clone, PATH, and last the extension's own environment", async (context) => {
  const folder = scratchFolder(context);
  const [given, environment, clone, onPath, own] = ["given", "environment", "clone", "path", "own"].map((name) =>
    path.join(folder, name),
  ) as [string, string, string, string, string];
  writeScript(given);
  writeScript(clone);
  writeScript(commandIn(environment));
  writeScript(path.join(onPath, "midfill"));
  writeScript(commandIn(own));
  let places: Places = { serverPath: given, environments: [environment], clone, searchPath: onPath, ownEnvironment: own };
  assert.equal(await findCommand(places, "/home"), given);
  places = { ...places, serverPath: "" };
  assert.equal(await findCommand(places, "/home"), commandIn(environment));
  places = { ...places, environments: [] };
  assert.equal(await findCommand(places, "/home"), clone);
  places = { ...places, clone: undefined };
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

test("the clone's command is the one that the build has recorded, if nobody else could have put it there", async (context) => {
  const folder = scratchFolder(context);
  const command = writeScript(path.join(folder, "bin/midfill"));
  const record = (recorded: unknown): string => {
    writeFileSync(path.join(folder, "clone.json"), JSON.stringify(recorded));
    return path.join(folder, "clone.json");
  };
  assert.equal(await commandOfClone(record({ midfill: command })), command);
  for (const elsewhere of [{ midfill: "/nowhere/midfill" }, { midfill: "bin/midfill" }, { midfill: 7 }, {}, null]) {
    assert.equal(await commandOfClone(record(elsewhere)), undefined);
  }
  assert.equal(await commandOfClone(path.join(folder, "no such file")), undefined);
  const file = record({ midfill: command });
  for (const [open, mode] of [[command, 0o757], [path.dirname(command), 0o777]] as const) {
    chmodSync(open, mode);
    assert.equal(await commandOfClone(file), undefined, open);
    chmodSync(open, 0o775); // as with the umask 002
    assert.equal(await commandOfClone(file), command);
  }
  context.mock.method(process as { getuid: () => number }, "getuid", () => 4711); // the command belongs to somebody else
  assert.equal(await commandOfClone(file), undefined);
});
