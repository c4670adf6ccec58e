// Shows the page of `midfill stats` in a tab.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import * as path from "node:path";

import * as vscode from "vscode";

import { run } from "./processes.ts";
import { commandOf } from "./reports.ts";
import type { Server } from "./server.ts";

/** Show the statistics as they are now. */
export async function showStatistics(server: Server): Promise<void> {
  const command = commandOf(server);
  if (command === undefined) {
    return;
  }
  try {
    const html = await page(command);
    const panel = vscode.window.createWebviewPanel("midfill.stats", "midfill statistics", vscode.ViewColumn.Active);
    panel.webview.html = html;
  } catch (error) {
    void vscode.window.showErrorMessage(`midfill: ${error instanceof Error ? error.message : String(error)}`);
  }
}

async function page(command: string): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), "midfill-stats-"));
  try {
    const file = path.join(folder, "statistics.html");
    const lines: string[] = [];
    const status = await run(command, ["stats", "--html", file], { onLine: (line) => lines.push(line) });
    if (status !== 0) {
      throw new Error(lines.join(" ") || `midfill stats ended with status ${String(status)}`);
    }
    return await readFile(file, "utf8");
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
