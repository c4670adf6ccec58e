// The settings that go to the server, as values: which there are, and what to send when they change.

/** Settings that have the same name here, under `midfill.`, and in the server. */
export const SERVER_SETTINGS = [
  "model",
  "device",
  "dtype",
  "weights",
  "threads",
  "fimFormat",
  "healing",
  "contextTokens",
  "core",
  "slots",
  "storeMb",
  "diskMb",
  "exact",
  "unloadAfterS",
  "exitAfterS",
  "strategy",
  "prefixTokens",
  "suffixTokens",
  "maxTokens",
  "multiLine",
  "alternatives",
  "holdBackPercent",
  "otherFiles",
  "otherFilesTokens",
  "disabledLanguages",
  "debounceMs",
  "statistics",
  "logLevel",
] as const;

export type SettingName = (typeof SERVER_SETTINGS)[number] | "coreToken";
export type SettingValue = string | number | boolean | readonly string[];

/** What the user has set; what is left out is the server's to choose, from its environment or its defaults. */
export type ServerSettings = Partial<Record<SettingName, SettingValue>>;

/**
 * What to tell a server that was started with `initial` and shall now work by `current`.
 *
 * The server lays every change over what it was started with, so what has been unset since must be sent as its default.
 */
export function changedSettings(
  initial: ServerSettings,
  current: ServerSettings,
  defaults: ServerSettings,
): ServerSettings {
  const unset = Object.keys(initial).filter((name) => !(name in current)) as SettingName[];
  return { ...Object.fromEntries(unset.map((name) => [name, defaults[name] ?? ""])), ...current };
}

/** The same settings for a command line tool of midfill, as environment variables. */
export function asEnvironment(settings: ServerSettings): Record<string, string> {
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [variableName(name), String(value)]));
}

/** The list with `language` in it if it was not, and without it if it was. */
export function toggled(languages: readonly string[], language: string): string[] {
  return languages.includes(language) ? languages.filter((other) => other !== language) : [...languages, language];
}

function variableName(name: string): string {
  return "MIDFILL_" + name.replace(/[A-Z]/g, (letter) => "_" + letter).toUpperCase();
}
