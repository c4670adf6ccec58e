// The server's settings as values, and the changes to send.

export type SettingValue = string | number | boolean | readonly string[];

/** The settings that the user has changed; the server takes the others from its environment or its defaults. */
export type ServerSettings = Readonly<Record<string, SettingValue>>;

/**
 * The changes to send to a server that was started with `initial`, so that it uses `current`.
 *
 * The server applies every change to its initial settings, so a setting that was unset since is sent as its default;
 * undefined if this is not known, and the server must be started anew.
 */
export function changedSettings(
  initial: ServerSettings,
  current: ServerSettings,
  defaults: ServerSettings,
): ServerSettings | undefined {
  const unset = Object.keys(initial).filter((name) => !(name in current));
  const back: Record<string, SettingValue> = {};
  for (const name of unset) {
    const value = defaults[name];
    if (value === undefined) {
      return undefined;
    }
    back[name] = value;
  }
  return { ...back, ...current };
}

/** The same settings for a command line tool of midfill, as environment variables. */
export function asEnvironment(settings: ServerSettings): Record<string, string> {
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [variableName(name), asText(value)]));
}

/** An empty variable counts as not set, so an empty list is a comma. */
function asText(value: SettingValue): string {
  return Array.isArray(value) && value.length === 0 ? "," : String(value);
}

function variableName(name: string): string {
  return "MIDFILL_" + name.replace(/[A-Z]/g, (letter) => "_" + letter).toUpperCase();
}
