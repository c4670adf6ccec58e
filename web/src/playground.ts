// The playground: wires the editor, the session, the strip and the model chooser.

import { pageKey } from "./access.ts";
import { byId, element, notice } from "./elements.ts";
import { Connection } from "./playground/connection.ts";
import { Editor } from "./playground/editor.ts";
import type { Place, Status, ToPage } from "./playground/messages.ts";
import { Models } from "./playground/models.ts";
import { Reuse } from "./playground/reuse.ts";
import { SAMPLES } from "./playground/samples.ts";

class Playground {
  readonly #editor: Editor;
  readonly #reuse = new Reuse();
  readonly #models: Models;
  readonly #connection: Connection;
  readonly #opened = new Set<string>(); // the files that the session knows
  readonly #versions = new Map<string, number>();
  #asked = 0; // the id of the newest request
  #model = ""; // chosen on this page
  #isReady = false;

  constructor(key: string) {
    this.#editor = new Editor(byId("editor"), {
      edited: (name, changes) => {
        this.#leave();
        const version = (this.#versions.get(name) ?? 0) + 1;
        this.#versions.set(name, version);
        this.#connection.send({ type: "Edit", name, version, changes });
      },
      moved: (name, place) => {
        this.#leave();
        if (place !== undefined) {
          this.#connection.send({ type: "Move", name, place });
        }
      },
      wanted: (name, place, invoked) => {
        this.#ask(name, place, invoked);
      },
    });
    this.#models = new Models(
      () => {
        this.#connection.send({ type: "ListModels" });
      },
      (model) => {
        this.#model = model;
        this.#connection.send({ type: "UseModel", model });
        this.#editor.focus();
      },
    );
    this.#connection = new Connection(key, {
      opened: () => {
        notice("");
        this.#opened.clear();
        this.#isReady = false;
        if (this.#model !== "") {
          this.#connection.send({ type: "UseModel", model: this.#model });
        }
        this.#view(this.#editor.name);
      },
      closed: () => {
        this.#state("failed", "not connected");
        notice("The playground has ended, or its connection. Start it again by", "midfill play");
      },
      received: (message) => {
        this.#receive(message);
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

  /** Tell the session about the file in sight, if it is new there, and ask for a first suggestion. */
  #view(name: string): void {
    this.#leave();
    if (!this.#opened.has(name)) {
      this.#opened.add(name);
      this.#versions.set(name, 0);
      const { language = "" } = SAMPLES.find((one) => one.name === name) ?? {};
      this.#connection.send({ type: "Open", name, language, text: this.#editor.text(name) });
    }
    const { place } = this.#editor;
    if (place === undefined) {
      return;
    }
    if (this.#isReady) {
      this.#ask(name, place, false);
    } else {
      this.#connection.send({ type: "Move", name, place }); // loads the model
    }
  }

  /** Drop the answers that are still to come: they would show at a place that they were not made for. */
  #leave(): void {
    this.#asked += 1;
  }

  #ask(name: string, place: Place, invoked: boolean): void {
    this.#asked += 1;
    this.#connection.send({ type: "Suggest", id: this.#asked, name, place, invoked });
  }

  #receive(message: ToPage): void {
    switch (message.type) {
      case "Suggestions":
        if (message.id === this.#asked) {
          this.#editor.suggest(message.items);
        }
        break;
      case "Cost":
        this.#reuse.show(message);
        break;
      case "Status":
        this.#showStatus(message);
        break;
      case "Models":
        this.#models.show(message.models);
        break;
      case "Excluded":
        notice(message.reason === null ? "" : `No suggestions in ${message.name}: ${message.reason}`);
        break;
      case "Failed":
        this.#models.fail(message.message);
        notice(message.message);
        break;
    }
  }

  #showStatus({ state, model, device = "", message = "", progress }: Status): void {
    this.#models.current = model;
    const share = progress === undefined ? "" : ` ${Math.round(100 * progress)} %`;
    this.#state(state, state === "ready" ? `ready, ${device}` : `${state}${share}`);
    notice(state === "failed" ? message : "");
    const becameReady = state === "ready" && !this.#isReady;
    this.#isReady = state === "ready";
    if (becameReady) {
      this.#view(this.#editor.name);
    }
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
