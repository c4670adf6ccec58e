// Finds this workspace's Python environments, and waits for no other extension longer than a moment.

import * as path from "node:path";

import * as vscode from "vscode";

import { within } from "./timeouts.ts";

/** The part of the Python extension's API that this module uses; another version may lack any of it. */
interface PythonApi {
  environments?: {
    getActiveEnvironmentPath?: (resource?: vscode.Uri) => { path: string } | undefined;
    onDidChangeActiveEnvironmentPath?: (listener: () => void) => vscode.Disposable;
  };
}

const PYTHON_EXTENSION = "ms-python.python";
const CUSTOMARY_FOLDERS = [".venv", "venv"];

/** Deadline for the Python extension to become active. */
const ANSWER_MS = 5000;

interface Asking {
  /** Whether the Python extension is to be activated if it is not; it may be slow, or fail. */
  activate: boolean;
}

type Log = Pick<vscode.LogOutputChannel, "warn">;

/** Interpreters that the user has chosen; none in an untrusted workspace, since they may be its files. */
export async function chosenInterpreters(log: Log, asking: Asking): Promise<string[]> {
  if (!vscode.workspace.isTrusted) {
    return [];
  }
  try {
    const chosen = (await pythonApi(asking))?.environments?.getActiveEnvironmentPath?.(vscode.workspace.workspaceFolders?.[0]?.uri);
    return chosen !== undefined && path.isAbsolute(chosen.path) ? [chosen.path] : [];
  } catch (error) {
    log.warn(`going on without the Python extension: ${String(error)}`);
    return [];
  }
}

/** Root folders of the workspace's environments, the chosen one first; none if it is not trusted. */
export async function workspaceEnvironments(log: Log, asking: Asking): Promise<string[]> {
  if (!vscode.workspace.isTrusted) {
    return [];
  }
  const chosen = (await chosenInterpreters(log, asking)).map((interpreter) => path.dirname(path.dirname(interpreter)));
  const customary = workspaceFolders().flatMap((folder) => CUSTOMARY_FOLDERS.map((name) => path.join(folder, name)));
  return [...chosen, ...customary];
}

/** Whether the file is one of a workspace that the user does not trust. */
export function isUntrusted(file: string): boolean {
  return !vscode.workspace.isTrusted && workspaceFolders().some((folder) => file.startsWith(path.join(folder, path.sep)));
}

/** Calls `changed` when another interpreter is chosen, and when the Python extension becomes active later than this one. */
export function watchInterpreter(changed: () => void): vscode.Disposable {
  let listening: vscode.Disposable | undefined;
  const listen = (): boolean => {
    const extension = vscode.extensions.getExtension<PythonApi | undefined>(PYTHON_EXTENSION);
    if (listening === undefined && extension?.isActive === true) {
      listening = extension.exports?.environments?.onDidChangeActiveEnvironmentPath?.(changed);
      return listening !== undefined;
    }
    return false;
  };
  const listenLate = (): void => {
    if (listen()) {
      changed();
    }
  };
  listen();
  return vscode.Disposable.from(
    vscode.extensions.onDidChange(listenLate),
    vscode.window.onDidChangeActiveTextEditor(listenLate), // no event tells of an activation
    {
      dispose: () => {
        listening?.dispose();
      },
    },
  );
}

async function pythonApi({ activate }: Asking): Promise<PythonApi | undefined> {
  const extension = vscode.extensions.getExtension<PythonApi | undefined>(PYTHON_EXTENSION);
  if (extension?.isActive === true) {
    return extension.exports;
  }
  return extension === undefined || !activate ? undefined : within<PythonApi | undefined>(ANSWER_MS, Promise.resolve(extension.activate()));
}

function workspaceFolders(): string[] {
  return (vscode.workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === "file").map(({ uri }) => uri.fsPath);
}
