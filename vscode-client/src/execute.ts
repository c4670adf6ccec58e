// Runs the language server's commands for the user, who is told when one fails.

import * as vscode from "vscode";

import type { Server } from "./server.ts";

/** The command's result, null if it has none; undefined after a failure, which this function shows. */
export async function execute(server: Server, command: string, args?: readonly unknown[]): Promise<unknown> {
  try {
    if (server.client === undefined) {
      throw new Error("no language server is running");
    }
    return (await server.client.execute(command, args)) ?? null;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    void vscode.window.showErrorMessage(`midfill: ${reason}`);
    return undefined;
  }
}
