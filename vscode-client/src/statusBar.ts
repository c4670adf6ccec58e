// The item in the status bar.

import * as vscode from "vscode";

import type { Server } from "./server.ts";
import { view, type View } from "./status.ts";

const BACKGROUNDS: Record<View["severity"], vscode.ThemeColor | undefined> = {
  normal: undefined,
  warning: new vscode.ThemeColor("statusBarItem.warningBackground"),
  error: new vscode.ThemeColor("statusBarItem.errorBackground"),
};

export class StatusBar implements vscode.Disposable {
  private readonly item: vscode.StatusBarItem;
  private readonly subscriptions: vscode.Disposable[];

  constructor(
    private readonly server: Server,
    menuCommand: string,
  ) {
    this.item = vscode.window.createStatusBarItem("status", vscode.StatusBarAlignment.Right, 100);
    this.item.name = "midfill";
    this.item.command = menuCommand;
    const draw = (): void => {
      this.draw();
    };
    this.subscriptions = [
      server.onDidChange(draw),
      vscode.window.onDidChangeActiveTextEditor(draw),
    ];
    draw();
    this.item.show();
  }

  dispose(): void {
    vscode.Disposable.from(this.item, ...this.subscriptions).dispose();
  }

  private draw(): void {
    const { phase, core, usage } = this.server;
    const document = vscode.window.activeTextEditor?.document;
    const { text, tooltip, severity } = view({
      phase,
      core,
      usage,
      reason: this.server.reason(document),
    });
    this.item.text = text;
    this.item.tooltip = new vscode.MarkdownString(tooltip);
    this.item.backgroundColor = BACKGROUNDS[severity];
  }
}
