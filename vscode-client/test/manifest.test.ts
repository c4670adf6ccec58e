// What package.json contributes: the server's settings as its documentation has them, and few of everything.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import * as path from "node:path";
import { test } from "node:test";

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
    keybindings: { command: string; key: string; mac?: string; when: string }[];
    configuration: { properties: Record<string, Property> };
  };
}

const FOLDER = path.dirname(import.meta.dirname);

function read(...parts: string[]): string {
  return readFileSync(path.join(FOLDER, ...parts), "utf8");
}

const manifest = JSON.parse(read("package.json")) as Manifest;
const { properties } = manifest.contributes.configuration;

const TYPES: Record<string, string> = {
  text: "string",
  "whole number": "integer",
  "true or false": "boolean",
  "list of names": "array",
};

/** Those of the extension itself, and those for which VS Code has a place of its own: its secrets, and `enabled`. */
const OWN = ["enabled", "serverPath"];
const ELSEWHERE = ["coreToken", "engineKey", "disabledLanguages"];

/** The first table of the page; the second has the advanced ones, which the settings page does not show. */
const [table = ""] = read("../docs/settings.md").split("\n## Advanced");
const documented = [...table.matchAll(/^\| `(\w+)` \| `--[\w-]+` \| (.+?) \| `(.+?)` \|/gm)].map(
  ([, name = "", type = "", value = ""]) => ({ name, type, value: JSON.parse(value) as unknown }),
);
const shown = documented.filter(({ name }) => !ELSEWHERE.includes(name));

test("the extension has midfill's version, whose wheels it bundles", () => {
  assert.equal(manifest.version, /^version = "(.+)"$/m.exec(read("../pyproject.toml"))?.[1]);
});

test("the settings page has the server's settings, and the extension's own two", () => {
  const names = [...OWN, ...shown.map(({ name }) => name)].map((name) => `midfill.${name}`);
  assert.deepEqual(Object.keys(properties).sort(), names.sort());
});

for (const { name, type, value } of shown) {
  test(`midfill.${name} has the server's type and default`, () => {
    const property = properties[`midfill.${name}`];
    assert.ok(property !== undefined);
    assert.deepEqual(property.default, value);
    const choices = [...type.matchAll(/`([\w-]+)`/g)].map(([, choice]) => choice);
    const isList = type.startsWith("list of");
    assert.equal(property.type, isList ? "array" : choices.length > 0 ? "string" : TYPES[type]);
    assert.deepEqual((isList ? property.items?.enum : property.enum) ?? [], choices);
  });
}

test("there are few settings, commands and entries of the menu", () => {
  const count = (text: string, pattern: RegExp): number => [...text.matchAll(pattern)].length;
  const menu = read("src/menu.ts");
  const entries = menu.slice(menu.indexOf("function entries"), menu.indexOf("/** Empty where"));
  const [, running = ""] = entries.split("!server.isOn()");
  assert.ok(Object.keys(properties).length <= 16, "settings");
  assert.ok(manifest.contributes.commands.length <= 10, "commands");
  assert.ok(count(running.slice(running.indexOf("return [\n")), /command: "midfill\./g) + 1 <= 10, "entries"); // and the language's
});

test("every command that is named anywhere has a handler", () => {
  const source = read("src/commands.ts");
  const handlers = source.slice(source.indexOf("const handlers"), source.indexOf("const registered"));
  const handled = [...handlers.matchAll(/^ {4}"(midfill\.[\w.]+)":/gm)].map(([, name = ""]) => name).concat("midfill.menu");
  const menus = ["src/menu.ts", "src/failures.ts", "src/cores.ts"].map((file) => read(file)).join("");
  const named = [
    ...manifest.contributes.commands.map(({ command }) => command),
    ...manifest.contributes.keybindings.map(({ command }) => command).filter((name) => name.startsWith("midfill.")),
    ...[...read("package.nls.json").matchAll(/command:(midfill\.\w+)/g)].map(([, name = ""]) => name),
    ...[...menus.matchAll(/(?:command|executeCommand|Doctor|Restart|log"?)[:(] ?"(midfill\.\w+)"/g)].map(([, name = ""]) => name),
  ];
  assert.deepEqual(
    [...new Set(named)].filter((name) => !handled.includes(name)),
    [],
  );
  assert.deepEqual(
    handled.filter((name) => !named.includes(name)),
    [],
  );
});

test("every text of the manifest is in package.nls.json, and no other", () => {
  const texts = JSON.parse(read("package.nls.json")) as Record<string, string>;
  const used = [...read("package.json").matchAll(/"%([\w.]+)%"/g)].map(([, key = ""]) => key);
  assert.deepEqual(used.sort(), Object.keys(texts).sort());
});

test("no key of an editor is taken, but while a next edit is shown, or after an acceptance", () => {
  const always = manifest.contributes.keybindings.filter(({ when }) => !/^midfill\.(?:nextEditShown|accepted) && /.test(when));
  assert.deepEqual(
    always.map(({ command, key, mac = key }) => [command, key, mac]),
    [["editor.action.inlineSuggest.trigger", "alt+\\", "alt+\\"]], // which VS Code leaves free: the end-to-end tests compare
  );
});
