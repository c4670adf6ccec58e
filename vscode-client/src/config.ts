// Reads and changes midfill's section of VS Code's settings.

import * as vscode from "vscode";

import type { ServerSettings, SettingValue } from "./settings.ts";

const SECTION = "midfill";

/** Settings that are not the server's: the extension's own, the protocol client's, and those that only a secret place may hold. */
const NOT_THE_SERVERS = ["enabled", "serverPath", "trace", "coreToken", "engineKey"];

export function isEnabled(): boolean {
  return section().get("enabled", true);
}

/** What the document's language or folder says of that, if they say anything. */
export function enabledFor(document: vscode.TextDocument): boolean | undefined {
  const said = vscode.workspace.getConfiguration(SECTION, document).inspect<boolean>("enabled");
  return (
    said?.workspaceFolderLanguageValue ??
    said?.workspaceLanguageValue ??
    said?.globalLanguageValue ??
    said?.workspaceFolderValue
  );
}

export function serverPath(): string {
  return section().get("serverPath", "").trim();
}

export function coreAddress(): string {
  return section().get("core", "").trim();
}

/**
 * The server's settings that the user has changed. One that the settings page does not have, since few need it, counts
 * only where the user's own file has it: VS Code does not keep those of an untrusted workspace apart.
 */
export function explicitSettings(): ServerSettings {
  const config = section();
  const set = serverSettings(config).filter((name) => {
    const said = config.inspect(name);
    return said?.globalValue !== undefined || (said?.defaultValue !== undefined && said.workspaceValue !== undefined);
  });
  const value = (name: string): SettingValue | undefined => {
    const said = config.inspect<SettingValue>(name);
    return said?.defaultValue === undefined ? said?.globalValue : config.get<SettingValue>(name);
  };
  return Object.fromEntries(set.map((name) => [name, value(name) ?? ""]));
}

/** The defaults of the settings that the settings page has. */
export function defaultSettings(): ServerSettings {
  const config = section();
  const defaults = serverSettings(config).map((name) => [name, config.inspect<SettingValue>(name)?.defaultValue] as const);
  return Object.fromEntries(defaults.filter(([, value]) => value !== undefined)) as ServerSettings;
}

/** Whether the editor itself shows inline suggestions in the document. */
export function showsInlineSuggestions(document: vscode.TextDocument): boolean {
  return vscode.workspace.getConfiguration("editor", document).get("inlineSuggest.enabled", true);
}

/** Switch the document's language on or off, in the user's settings. */
export async function toggleLanguage({ languageId, uri }: vscode.TextDocument): Promise<void> {
  const language = vscode.workspace.getConfiguration(SECTION, { languageId, uri });
  const on = !language.get("enabled", true);
  const override = on === isEnabled() ? undefined : on;
  const said = language.inspect<boolean>("enabled");
  const ofWorkspace = said?.workspaceFolderLanguageValue ?? said?.workspaceLanguageValue;
  await update("enabled", ofWorkspace !== undefined, () =>
    language.update("enabled", override, vscode.ConfigurationTarget.Global, true),
  );
}

export async function setModel(model: string): Promise<void> {
  await update("model", section().inspect("model")?.workspaceValue !== undefined, () =>
    section().update("model", model, vscode.ConfigurationTarget.Global),
  );
}

export async function setServerPath(path: string): Promise<void> {
  await section().update("serverPath", path, vscode.ConfigurationTarget.Global);
}

export function affectsMidfill(event: vscode.ConfigurationChangeEvent, name?: string): boolean {
  return event.affectsConfiguration(name === undefined ? SECTION : `${SECTION}.${name}`);
}

function section(): vscode.WorkspaceConfiguration {
  return vscode.workspace.getConfiguration(SECTION);
}

function serverSettings(config: vscode.WorkspaceConfiguration): string[] {
  const names = Object.keys(config).filter((name) => typeof config[name] !== "function");
  return names.filter((name) => !NOT_THE_SERVERS.includes(name));
}

/**
 * Change the user's setting. If the workspace overrides it, the change would have no effect: offer to open the
 * workspace's settings instead, since the extension does not write into repositories.
 */
async function update(name: string, isOverridden: boolean, change: () => Thenable<void>): Promise<void> {
  if (!isOverridden) {
    await change();
    return;
  }
  const open = "Open workspace settings";
  const message = `midfill: this workspace's own settings choose ${SECTION}.${name}. Change it there.`;
  if ((await vscode.window.showInformationMessage(message, open)) === open) {
    const query = `${SECTION}.${name}`;
    await vscode.commands.executeCommand("workbench.action.openWorkspaceSettings", { query });
  }
}
