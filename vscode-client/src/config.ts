// Reads and changes midfill's section of VS Code's settings.

import * as vscode from "vscode";

import { SERVER_SETTINGS, toggled, type ServerSettings, type SettingValue } from "./settings.ts";

const SECTION = "midfill";

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

/** The source to install midfill from; empty for the one that the extension bundles. */
export function installationSource(): string {
  return section().get("package", "").trim();
}

export function coreAddress(): string {
  return section().get("core", "").trim();
}

export function disabledLanguages(): readonly string[] {
  return section().get<string[]>("disabledLanguages", []);
}

/** The settings that the user has changed, without the token. */
export function explicitSettings(): ServerSettings {
  const config = section();
  const explicit = SERVER_SETTINGS.filter((name) => isSet(config.inspect(name)));
  return Object.fromEntries(explicit.map((name) => [name, config.get<SettingValue>(name)]));
}

export function defaultSettings(): ServerSettings {
  const config = section();
  return Object.fromEntries(SERVER_SETTINGS.map((name) => [name, config.inspect<SettingValue>(name)?.defaultValue]));
}

/** Whether the editor itself shows inline suggestions in the document. */
export function showsInlineSuggestions(document: vscode.TextDocument): boolean {
  return vscode.workspace.getConfiguration("editor", document).get("inlineSuggest.enabled", true);
}

/** Switch a language on or off, in the user's settings. */
export async function toggleLanguage(language: string): Promise<void> {
  await update("disabledLanguages", toggled(disabledLanguages(), language));
}

export async function setModel(model: string): Promise<void> {
  await update("model", model);
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

/**
 * Change the user's setting. If the workspace overrides it, the change would have no effect: offer to open the
 * workspace's settings instead, since the extension does not write into repositories.
 */
async function update(name: string, value: SettingValue): Promise<void> {
  if (section().inspect(name)?.workspaceValue === undefined) {
    await section().update(name, value, vscode.ConfigurationTarget.Global);
    return;
  }
  const open = "Open workspace settings";
  const message = `midfill: this workspace's own settings choose ${SECTION}.${name}. Change it there.`;
  if ((await vscode.window.showInformationMessage(message, open)) === open) {
    const query = `${SECTION}.${name}`;
    await vscode.commands.executeCommand("workbench.action.openWorkspaceSettings", { query });
  }
}

function isSet(inspected: ReturnType<vscode.WorkspaceConfiguration["inspect"]>): boolean {
  return [inspected?.globalValue, inspected?.workspaceValue].some((value) => value !== undefined);
}
