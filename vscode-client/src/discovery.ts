// Finds the `midfill` command: the places to search, in order.

import { access, constants, readFile, stat } from "node:fs/promises";
import * as path from "node:path";

export interface Places {
  /** The setting; if it is not empty, the other places are ignored. */
  serverPath: string;
  /** Root folders of the workspace's environments; none if the workspace is not trusted. */
  environments: readonly string[];
  /** The command of the clone that the extension was built in, if it may be used. */
  clone: string | undefined;
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

/**
 * The command of the clone that the extension was built in, as the build has recorded it in `file`; undefined if there
 * is none, or if somebody else than the user could have put it there.
 *
 * A build that came from another machine names a path that anyone may have created here. Whom the user lets write by the
 * file's group is the user's affair: the umask of many systems does so.
 */
export async function commandOfClone(file: string): Promise<string | undefined> {
  try {
    const { midfill } = JSON.parse(await readFile(file, "utf8")) as { midfill?: unknown };
    if (typeof midfill !== "string" || !path.isAbsolute(midfill)) {
      return undefined;
    }
    return (await isOnlyTheUsers(midfill)) && (await isOnlyTheUsers(path.dirname(midfill))) ? midfill : undefined;
  } catch {
    return undefined; // no such file: the extension was built for others, or the clone is gone
  }
}

async function isOnlyTheUsers(file: string): Promise<boolean> {
  const { uid, mode } = await stat(file);
  return uid === process.getuid?.() && (mode & 0o002) === 0;
}

function candidates({ serverPath, environments, clone, searchPath, ownEnvironment }: Places, home: string): string[] {
  if (serverPath !== "") {
    return [serverPath.replace(/^~(?=[/\\]|$)/, home)];
  }
  // A relative entry of PATH would name files of the workspace.
  const folders = searchPath.split(path.delimiter).filter((folder) => path.isAbsolute(folder));
  const file = onWindows ? "midfill.exe" : "midfill";
  return [
    ...environments.map((environment) => commandIn(environment)),
    ...(clone === undefined ? [] : [clone]),
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
