// package.json says of the server's settings what the server's own documentation says.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import * as path from "node:path";
import { test } from "node:test";

import { SERVER_SETTINGS } from "../src/settings.ts";

interface Property {
  type: string;
  default: unknown;
  enum?: string[];
  items?: { enum?: string[] };
}

interface Manifest {
  version: string;
  contributes: {
    commands: { command: string }[];
    configuration: { properties: Record<string, Property> }[];
  };
}

const FOLDER = path.dirname(import.meta.dirname);
const manifest = JSON.parse(readFileSync(path.join(FOLDER, "package.json"), "utf8")) as Manifest;
const properties = Object.assign({}, ...manifest.contributes.configuration.map((part) => part.properties)) as Record<
  string,
  Property
>;
const documentation = readFileSync(path.join(FOLDER, "../docs/settings.md"), "utf8");

const TYPES: Record<string, string> = {
  text: "string",
  "whole number": "integer",
  "true or false": "boolean",
  "list of names": "array",
};

/** The settings of the server's table, but its secrets, which are no settings here. */
const documented = [...documentation.matchAll(/^\| `(\w+)` \| `--[\w-]+` \| (.+?) \| `(.+?)` \|/gm)]
  .map(([, name = "", type = "", value = ""]) => ({ name, type, value: JSON.parse(value) as unknown }))
  .filter(({ name }) => name !== "coreToken" && name !== "engineKey");

test("the extension has midfill's version, whose wheels it bundles", () => {
  const project = readFileSync(path.join(FOLDER, "../pyproject.toml"), "utf8");
  assert.equal(manifest.version, /^version = "(.+)"$/m.exec(project)?.[1]);
});

test("the server's settings are all here, and no others", () => {
  assert.deepEqual(documented.map(({ name }) => name).sort(), [...SERVER_SETTINGS].sort());
});

for (const name of SERVER_SETTINGS) {
  test(`midfill.${name} has the server's type and default`, () => {
    const property = properties[`midfill.${name}`];
    const setting = documented.find((row) => row.name === name);
    assert.ok(property !== undefined && setting !== undefined);
    assert.deepEqual(property.default, setting.value);
    const choices = [...setting.type.matchAll(/`([\w-]+)`/g)].map(([, choice]) => choice);
    const isList = setting.type.startsWith("list of");
    assert.equal(property.type, isList ? "array" : choices.length > 0 ? "string" : TYPES[setting.type]);
    assert.deepEqual((isList ? property.items?.enum : property.enum) ?? [], choices);
  });
}

test("every command of the manifest has a handler, and the other way round", () => {
  const source = readFileSync(path.join(FOLDER, "src/commands.ts"), "utf8");
  const table = source.slice(source.indexOf("const handlers"), source.indexOf("const registered"));
  const handled = [...table.matchAll(/^ {4}"(midfill\.[\w.]+)":/gm)].map(([, name]) => name);
  const contributed = manifest.contributes.commands.map(({ command }) => command);
  assert.deepEqual([...handled, "midfill.menu"].sort(), contributed.sort());
});
