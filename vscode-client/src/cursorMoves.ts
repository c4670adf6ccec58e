// Announces cursor moves to the server, so that the core prefills the prompt before the next key.

import * as vscode from "vscode";

import { MoveTracker } from "./moves.ts";
import type { Server } from "./server.ts";

/** Debounce: held arrow keys make one move. */
const REST_MS = 40;

export function followCursor(server: Server): vscode.Disposable {
  const tracker = new MoveTracker();
  let pending: NodeJS.Timeout | undefined;

  const selected = (editor: vscode.TextEditor): void => {
    const { document, selection } = editor;
    const { line, character } = selection.active;
    clearTimeout(pending);
    if (tracker.movedTo({ uri: document.uri.toString(), version: document.version, line, character })) {
      pending = setTimeout(() => {
        void server.client?.moveCursor(document, selection.active);
      }, REST_MS);
    }
  };
  const focused = (editor: vscode.TextEditor | undefined): void => {
    if (editor !== undefined) {
      void server.client?.focus(editor.document);
    }
  };
  return vscode.Disposable.from(
    vscode.window.onDidChangeTextEditorSelection(({ textEditor }) => {
      if (textEditor === vscode.window.activeTextEditor) {
        selected(textEditor); // an edit also moves the cursors of other editors on its document
      }
    }),
    vscode.window.onDidChangeActiveTextEditor(focused),
    vscode.window.onDidChangeWindowState(({ focused: inFront }) => {
      focused(inFront ? vscode.window.activeTextEditor : undefined);
    }),
    {
      dispose: () => {
        clearTimeout(pending);
      },
    },
  );
}
