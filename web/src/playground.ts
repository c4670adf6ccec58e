// The playground: wires the editor, its language server, the strip and the model chooser.

import { pageKey } from "./access.ts";
import { byId, element, notice } from "./elements.ts";
import { Editor } from "./playground/editor.ts";
import { LanguageServer } from "./playground/languageServer.ts";
import type { Core, InlineCompletions, Model, Place, Status } from "./playground/messages.ts";
import { Models } from "./playground/models.ts";
import { Reuse } from "./playground/reuse.ts";
import { SAMPLES } from "./playground/samples.ts";

const SCHEME = "untitled:"; // the page's documents are no files
const [INVOKED, AUTOMATIC] = [1, 2];

class Playground {
  readonly #editor: Editor;
  readonly #reuse = new Reuse();
  readonly #models: Models;
  readonly #server: LanguageServer;
  readonly #versions = new Map<string, number>(); // of the files that the server knows
  #asked = 0; // the number of the newest request

  constructor(key: string) {
    this.#editor = new Editor(byId("editor"), {
      edited: (name, contentChanges) => {
        this.#leave();
        const version = (this.#versions.get(name) ?? 0) + 1;
        this.#versions.set(name, version);
        this.#server.notify("textDocument/didChange", { textDocument: { uri: SCHEME + name, version }, contentChanges });
      },
      moved: (name, position) => {
        this.#leave();
        if (position !== undefined) {
          this.#server.notify("midfill/didMoveCursor", { textDocument: { uri: SCHEME + name }, position });
        }
      },
      wanted: (name, place, invoked) => {
        this.#ask(name, place, invoked);
      },
    });
    this.#models = new Models(
      () => {
        this.#try(async () => {
          const models = await this.#server.run<Model[]>("midfill.listModels");
          this.#models.show(models, await this.#server.run<Core[]>("midfill.listCores"));
        });
      },
      (model) => {
        this.#state("starting", "connecting");
        this.#server.restart({ model });
        this.#editor.focus();
      },
    );
    this.#server = new LanguageServer(key, {
      opened: () => {
        notice("");
        this.#versions.clear();
        this.#view(this.#editor.name);
      },
      closed: () => {
        this.#state("failed", "not connected");
        notice("The playground has ended, or its connection. Start it again by", "midfill play");
      },
      "midfill/status": (status) => {
        this.#showStatus(status);
      },
      "midfill/usage": (cost) => {
        this.#reuse.show(cost);
      },
      "midfill/reason": ({ textDocument, reason }) => {
        const name = textDocument.uri.replace(SCHEME, "");
        notice(reason?.lasts === true ? `No suggestions in ${name}: ${reason.explanation}` : "");
      },
      "midfill/refresh": ({ textDocument, invoked }) => {
        if (textDocument.uri === SCHEME + this.#editor.name && this.#editor.place !== undefined) {
          this.#ask(this.#editor.name, this.#editor.place, invoked);
        }
      },
      "midfill/resync": () => {
        this.#server.restart();
      },
      "window/showMessage": ({ message }) => {
        notice(message);
      },
    });
    this.#makeTabs();
  }

  #makeTabs(): void {
    const tabs = document.querySelector(".tabs");
    for (const { name } of SAMPLES) {
      const tab = element("button", "", name) as HTMLButtonElement;
      tab.type = "button";
      tab.role = "tab";
      tab.ariaSelected = String(name === this.#editor.name);
      tab.onclick = () => {
        tabs?.querySelectorAll("button").forEach((one) => (one.ariaSelected = String(one === tab)));
        this.#editor.choose(name);
        this.#view(name);
      };
      tabs?.append(tab);
    }
    this.#editor.focus();
  }

  /** Tell the server about the file in sight, if it is new there, and ask for a first suggestion. */
  #view(name: string): void {
    this.#leave();
    if (!this.#versions.has(name)) {
      this.#versions.set(name, 0);
      const { language: languageId = "" } = SAMPLES.find((one) => one.name === name) ?? {};
      const textDocument = { uri: SCHEME + name, languageId, version: 0, text: this.#editor.text(name) };
      this.#server.notify("textDocument/didOpen", { textDocument });
    }
    if (this.#editor.place !== undefined) {
      this.#ask(name, this.#editor.place, false);
    }
  }

  /** Drop the answers that are still to come: they would show at a place that they were not made for. */
  #leave(): void {
    this.#asked += 1;
  }

  #ask(name: string, position: Place, invoked: boolean): void {
    const asked = (this.#asked += 1);
    const context = { triggerKind: invoked ? INVOKED : AUTOMATIC };
    this.#try(async () => {
      const params = { textDocument: { uri: SCHEME + name }, position, context };
      const { items } = await this.#server.request<InlineCompletions>("textDocument/inlineCompletion", params);
      if (asked === this.#asked) {
        this.#editor.suggest(items.map(({ insertText, range }) => [insertText, range.end.character - position.character]));
      }
    });
  }

  /** Show the error of a request, if there is one. */
  #try(request: () => Promise<void>): void {
    request().catch((error: unknown) => {
      const message = error instanceof Error ? error.message : String(error);
      this.#models.fail(message);
      notice(message);
    });
  }

  #showStatus({ state, model, device, message, progress }: Status): void {
    if (model !== "") {
      this.#models.current = model;
    }
    const share = progress === null ? "" : ` ${Math.round(100 * progress)} %`;
    this.#state(state, state === "ready" ? `ready, ${device}` : `${state}${share}`);
    notice(state === "failed" ? message : "");
    byId("state").title = message;
  }

  #state(state: string, text: string): void {
    byId("state").className = `state ${state}`;
    byId("state").textContent = text;
  }
}

async function main(): Promise<void> {
  const key = await pageKey();
  if (key === undefined) {
    notice("This link was used before, or is too old. Open the playground by", "midfill play");
  } else {
    new Playground(key);
  }
}

void main();
