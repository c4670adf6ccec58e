// Finds this workspace's Python environments.

import * as path from "node:path";

import * as vscode from "vscode";

/** The part of the Python extension's API that this module uses. */
interface PythonApi {
  environments?: { getActiveEnvironmentPath(resource?: vscode.Uri): { path: string } | undefined };
}

const PYTHON_EXTENSION = "ms-python.python";
const CUSTOMARY_FOLDERS = [".venv", "venv"];

/** Interpreters that the user has chosen; none in an untrusted workspace, since they may be its files. */
export async function chosenInterpreters(): Promise<string[]> {
  if (!vscode.workspace.isTrusted) {
    return [];
  }
  const chosen = await chosenInPythonExtension();
  return chosen !== undefined && path.isAbsolute(chosen) ? [chosen] : [];
}

/** Root folders of the workspace's environments, the chosen one first; none if it is not trusted. */
export async function workspaceEnvironments(): Promise<string[]> {
  if (!vscode.workspace.isTrusted) {
    return [];
  }
  const chosen = (await chosenInterpreters()).map((interpreter) => path.dirname(path.dirname(interpreter)));
  const folders = (vscode.workspace.workspaceFolders ?? []).filter((folder) => folder.uri.scheme === "file");
  const customary = folders.flatMap(({ uri }) => CUSTOMARY_FOLDERS.map((name) => path.join(uri.fsPath, name)));
  return [...chosen, ...customary];
}

async function chosenInPythonExtension(): Promise<string | undefined> {
  const extension = vscode.extensions.getExtension<PythonApi>(PYTHON_EXTENSION);
  if (extension === undefined) {
    return undefined;
  }
  const { environments } = extension.isActive ? extension.exports : await extension.activate();
  return environments?.getActiveEnvironmentPath(vscode.workspace.workspaceFolders?.[0]?.uri)?.path;
}
