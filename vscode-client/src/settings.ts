// The server's settings as values: their names, and the changes to send.

/** Settings that have the same name here, under `midfill.`, and in the server. */
export const SERVER_SETTINGS = [
  "model",
  "engine",
  "engineSessionHeader",
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
  "automatic",
  "maxTokens",
  "multiLine",
  "alternatives",
  "holdBackPercent",
  "shortenUnlikely",
  "otherFiles",
  "otherFilesTokens",
  "contextSources",
  "disabledLanguages",
  "disabledFolders",
  "suggestIn",
  "ignoredFiles",
  "debounceMs",
  "statistics",
  "logLevel",
] as const;

export type SettingName = (typeof SERVER_SETTINGS)[number] | "coreToken";
export type SettingValue = string | number | boolean | readonly string[];

/** The settings that the user has changed; the server takes the others from its environment or its defaults. */
export type ServerSettings = Partial<Record<SettingName, SettingValue>>;

/**
 * The changes to send to a server that was started with `initial`, so that it uses `current`.
 *
 * The server applies every change to its initial settings, so a setting that was unset since is sent as its default.
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
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [variableName(name), asText(value)]));
}

/** An empty variable counts as not set, so an empty list is a comma. */
function asText(value: SettingValue): string {
  return Array.isArray(value) && value.length === 0 ? "," : String(value);
}

/** The list with `language` in it if it was not, and without it if it was. */
export function toggled(languages: readonly string[], language: string): string[] {
  return languages.includes(language) ? languages.filter((other) => other !== language) : [...languages, language];
}

function variableName(name: string): string {
  return "MIDFILL_" + name.replace(/[A-Z]/g, (letter) => "_" + letter).toUpperCase();
}
