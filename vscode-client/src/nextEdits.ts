// Shows next edits at rest: marks what goes, shows what comes, and jumps to the edit or applies it.

import * as vscode from "vscode";

import type { Client, NextEdit } from "./client.ts";
import type { Server } from "./server.ts";

/** Ghost text, which is asked for with each key, comes first. */
const REST_MS = 300;
const CONTEXT = "midfill.nextEditShown";
const MOST_SHOWN = 200;
/** Of several spaces, decorations show one. */
const NBSP = "\u00a0";
/** For so long after a selection of several lines nothing is asked. */
const SELECTION_MS = 5000;

interface Shown {
  editor: vscode.TextEditor;
  version: number;
  edit: NextEdit;
  client: Client;
}

export class NextEdits implements vscode.Disposable {
  private readonly old = vscode.window.createTextEditorDecorationType({
    backgroundColor: new vscode.ThemeColor("diffEditor.removedTextBackground"),
    textDecoration: "line-through", // what comes stands beside it
  });
  private readonly coming = vscode.window.createTextEditorDecorationType({});
  private readonly note = vscode.window.createTextEditorDecorationType({});
  private shown: Shown | undefined;
  private pending: NodeJS.Timeout | undefined;
  private selectedAt = -SELECTION_MS;
  private readonly subscriptions: vscode.Disposable;
  private readonly server: Server;

  constructor(server: Server) {
    this.server = server;
    this.subscriptions = vscode.Disposable.from(
      vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
        if (contentChanges.length > 0 && document === vscode.window.activeTextEditor?.document) {
          this.hide();
          this.askSoon();
        }
      }),
      vscode.window.onDidChangeTextEditorSelection(({ textEditor, selections }) => {
        if (textEditor !== vscode.window.activeTextEditor) {
          return; // an edit also moves the selections of other editors on its document
        }
        if (selections.some((selection) => !selection.isSingleLine)) {
          this.selectedAt = performance.now();
        }
        this.askSoon();
      }),
      vscode.window.onDidChangeActiveTextEditor(() => {
        this.hide();
      }),
      server.onDidChange(() => {
        if (this.shown !== undefined && !this.mayStay(this.shown)) {
          this.hide();
        }
      }),
    );
  }

  dispose(): void {
    this.hide();
    clearTimeout(this.pending);
    vscode.Disposable.from(this.subscriptions, this.old, this.coming, this.note).dispose();
  }

  /** Jump to the edit, or apply it if the cursor is in its lines; if it is gone, run `otherwise`. */
  async go(otherwise?: string[]): Promise<void> {
    const shown = await this.shownOr(otherwise);
    if (shown === undefined) {
      return;
    }
    const { editor, edit, client } = shown;
    const { line } = editor.selection.active;
    if (line < edit.range.start.line || line > edit.range.end.line) {
      editor.selection = new vscode.Selection(edit.range.start, edit.range.start);
      editor.revealRange(edit.range, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
      editor.setDecorations(this.note, []);
      return;
    }
    this.hide();
    const { document } = editor;
    const changed = edit.parts.at(-1)?.range ?? edit.range; // in whole words: the edit may end within one
    const behind = document.getText().length - document.offsetAt(changed.end);
    if (await editor.edit((builder) => { builder.replace(edit.range, edit.text); })) {
      const end = document.positionAt(document.getText().length - behind);
      editor.selection = new vscode.Selection(end, end);
      client.didAccept(document, edit.range.start, end);
      await client.execute(edit.accepted, edit.arguments);
    }
  }

  /** Hide the edit, so that nothing like it is offered again; if it is gone, run `otherwise`. */
  async refuse(otherwise?: string[]): Promise<void> {
    const shown = await this.shownOr(otherwise);
    if (shown !== undefined) {
      this.hide();
      await shown.client.execute(shown.edit.refused, shown.edit.arguments);
    }
  }

  /** The edit; where there is none and VS Code has yet to hear that, the key's commands without one are run. */
  private async shownOr(otherwise: string[] = []): Promise<Shown | undefined> {
    const { shown } = this;
    if (shown !== undefined && shown.editor.document.version === shown.version) {
      return shown;
    }
    for (const command of otherwise) {
      await vscode.commands.executeCommand(command);
    }
    return undefined;
  }

  /** Not beside ghost text, nor without the server that offers it. */
  private mayStay({ editor: { document }, client }: Shown): boolean {
    return this.server.phase.name === "running" && this.server.isOn(document) && !client.isBusyIn(document);
  }

  private askSoon(): void {
    clearTimeout(this.pending);
    this.pending = setTimeout(() => void this.ask(), REST_MS);
  }

  private async ask(): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    const { client } = this.server;
    if (editor === undefined || client === undefined || editor.selections.length > 1 || !editor.selection.isEmpty) {
      return;
    }
    const { document } = editor;
    if (client.isBusyIn(document) || performance.now() - this.selectedAt < SELECTION_MS) {
      return;
    }
    const [version, place] = [document.version, editor.selection.active];
    const edit = await client.nextEdit(document, place);
    if (document.version === version && editor === vscode.window.activeTextEditor && place.isEqual(editor.selection.active)) {
      this.hide();
      if (edit !== undefined && !client.isBusyIn(document)) {
        await this.show({ editor, version, edit, client });
      }
    }
  }

  private async show(shown: Shown): Promise<void> {
    const { editor, edit, client } = shown;
    this.shown = shown;
    const backgroundColor = new vscode.ThemeColor("diffEditor.insertedTextBackground");
    const hoverMessage = new vscode.MarkdownString().appendCodeblock(edit.text, editor.document.languageId);
    const tab = NBSP.repeat(Number(editor.options.tabSize));
    const marks = edit.parts.filter(({ text }) => text !== "").map(({ text, range }): vscode.DecorationOptions => {
      const oneLine = text.replace(/\r?\n/g, " ⏎ ").replaceAll("\t", tab).replaceAll(" ", NBSP);
      const contentText = oneLine.length > MOST_SHOWN ? `${oneLine.slice(0, MOST_SHOWN)}…` : oneLine;
      return { range: new vscode.Range(range.end, range.end), hoverMessage, renderOptions: { after: { contentText, backgroundColor } } };
    });
    if (!editor.visibleRanges.some((visible) => visible.contains(edit.range.start))) {
      const lineEnd = editor.document.lineAt(editor.selection.active.line).range.end;
      const color = new vscode.ThemeColor("editorGhostText.foreground"); // none of the text that comes
      const told = { contentText: `next edit in line ${String(edit.range.start.line + 1)}`, color, margin: "0 0 0 2ch" };
      editor.setDecorations(this.note, [{ range: new vscode.Range(lineEnd, lineEnd), renderOptions: { after: told } }]);
    }
    const old = edit.parts.filter(({ range }) => !range.isEmpty);
    editor.setDecorations(this.old, old.map(({ range }) => ({ range, hoverMessage })));
    editor.setDecorations(this.coming, marks);
    await vscode.commands.executeCommand("setContext", CONTEXT, true);
    if (this.shown === shown) {
      await client.didShowNextEdit(edit); // once its keys work
    }
  }

  private hide(): void {
    if (this.shown !== undefined) {
      for (const type of [this.old, this.coming, this.note]) {
        this.shown.editor.setDecorations(type, []);
      }
      this.shown = undefined;
      void vscode.commands.executeCommand("setContext", CONTEXT, false);
    }
  }
}
