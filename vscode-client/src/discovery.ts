// Finds the `midfill` command: the places to search, in order.

import { access, constants, stat } from "node:fs/promises";
import * as path from "node:path";

export interface Places {
  /** The setting; if it is not empty, the other places are ignored. */
  serverPath: string;
  /** Root folders of the workspace's environments; none if the workspace is not trusted. */
  environments: readonly string[];
  /** The PATH variable. */
  searchPath: string;
  /** The environment that the extension installs into. */
  ownEnvironment: string;
}

export const onWindows = process.platform === "win32";

/** The path of the command, or undefined if there is none. */
export async function findCommand(places: Places, home: string): Promise<string | undefined> {
  for (const candidate of candidates(places, home)) {
    if (await isExecutable(candidate)) {
      return candidate;
    }
  }
  return undefined;
}

/** The command of an environment, if midfill is installed there. */
export function commandIn(environment: string, command = "midfill"): string {
  return onWindows ? path.join(environment, "Scripts", `${command}.exe`) : path.join(environment, "bin", command);
}

function candidates({ serverPath, environments, searchPath, ownEnvironment }: Places, home: string): string[] {
  if (serverPath !== "") {
    return [serverPath.replace(/^~(?=[/\\]|$)/, home)];
  }
  // A relative entry of PATH would name files of the workspace.
  const folders = searchPath.split(path.delimiter).filter((folder) => path.isAbsolute(folder));
  const file = onWindows ? "midfill.exe" : "midfill";
  return [
    ...environments.map((environment) => commandIn(environment)),
    ...folders.map((folder) => path.join(folder, file)),
    commandIn(ownEnvironment),
  ];
}

async function isExecutable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return (await stat(file)).isFile();
  } catch {
    return false; // missing, or not executable
  }
}
