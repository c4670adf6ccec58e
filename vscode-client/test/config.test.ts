import assert from "node:assert/strict";
import { registerHooks } from "node:module";
import { beforeEach, test } from "node:test";

import type { TextDocument } from "vscode";

interface Inspected {
  defaultValue?: unknown;
  globalValue?: unknown;
  workspaceValue?: unknown;
  globalLanguageValue?: unknown;
  workspaceLanguageValue?: unknown;
}

let settings: Record<string, Inspected> = {};
const updates: unknown[][] = [];

/** As VS Code has it: the values are the object's own, besides its methods. */
function getConfiguration(_: string, scope?: { languageId?: string }): object {
  const inLanguage = (said: Inspected | undefined): unknown => said?.workspaceLanguageValue ?? said?.globalLanguageValue;
  const value = (name: string): unknown => {
    const said = settings[name];
    const plain = said?.workspaceValue ?? said?.globalValue ?? said?.defaultValue;
    return scope?.languageId === undefined ? plain : (inLanguage(said) ?? plain);
  };
  return {
    ...Object.fromEntries(Object.keys(settings).map((name) => [name, value(name)])),
    get: (name: string, fallback: unknown) => value(name) ?? fallback,
    inspect: (name: string) => settings[name],
    update: (...change: unknown[]) => Promise.resolve(updates.push([...change, scope?.languageId])),
  };
}

const shown: string[] = [];
const stub = {
  ConfigurationTarget: { Global: 1 },
  window: { showInformationMessage: (message: string) => Promise.resolve(void shown.push(message)) },
  workspace: { getConfiguration },
};
Object.assign(globalThis, { vscodeStub: stub });
const names = Object.keys(stub).map((name) => `export const ${name} = globalThis.vscodeStub.${name};`);
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "vscode"
      ? { url: `data:text/javascript,${names.join("")}`, shortCircuit: true }
      : next(specifier, context),
});
const { defaultSettings, explicitSettings, toggleLanguage } = await import("../src/config.ts");

const DOCUMENT = { languageId: "python", uri: "file:///a.py" } as unknown as TextDocument;

beforeEach(() => {
  settings = {};
  updates.length = shown.length = 0;
});

test("the server gets what the user has set of its settings, the advanced ones too", () => {
  settings = {
    enabled: { defaultValue: true, globalValue: false },
    serverPath: { defaultValue: "", globalValue: "/midfill" },
    maxTokens: { defaultValue: 64, globalValue: 8, workspaceValue: 16 },
    multiLine: { defaultValue: true },
    contextTokens: { globalValue: 8192 },
    coreToken: { globalValue: "secret" },
  };
  assert.deepEqual(explicitSettings(), { maxTokens: 16, contextTokens: 8192 });
  assert.deepEqual(defaultSettings(), { maxTokens: 64, multiLine: true });
});

test("a workspace sets nothing that VS Code does not know, and so does not keep from an untrusted one", () => {
  settings = { fimFormat: { workspaceValue: "other" }, contextTokens: { globalValue: 8192, workspaceValue: 1_000_000 } };
  assert.deepEqual(explicitSettings(), { contextTokens: 8192 });
});

test("a language is switched off in the user's settings, and on again by taking that back", async () => {
  settings = { enabled: { defaultValue: true } };
  await toggleLanguage(DOCUMENT);
  settings = { enabled: { defaultValue: true, globalLanguageValue: false } };
  await toggleLanguage(DOCUMENT);
  settings = { enabled: { defaultValue: true, globalValue: false } };
  await toggleLanguage(DOCUMENT);
  assert.deepEqual(updates, [
    ["enabled", false, 1, true, "python"],
    ["enabled", undefined, 1, true, "python"],
    ["enabled", true, 1, true, "python"],
  ]);
});

test("a language that the workspace switches is left to the workspace's settings", async () => {
  settings = { enabled: { defaultValue: true, workspaceLanguageValue: false } };
  await toggleLanguage(DOCUMENT);
  assert.deepEqual(updates, []);
  assert.match(shown.join(), /this workspace's own settings choose midfill\.enabled/);
});
