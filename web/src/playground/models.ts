// The model chooser: what this machine has, what runs, and why something cannot.

import { byId, element } from "../elements.ts";
import type { Model } from "./messages.ts";

export class Models {
  readonly #button = byId("model") as HTMLButtonElement;
  readonly #menu = byId("models");
  readonly #use: (model: string) => void;
  #current = "";

  constructor(list: () => void, use: (model: string) => void) {
    this.#use = use;
    this.#button.onclick = () => {
      this.#open(this.#menu.hidden === true);
      if (this.#menu.hidden !== true) {
        this.#menu.replaceChildren(element("p", "", "Looking for the models on this machine …"));
        list();
      }
    };
    document.addEventListener("click", ({ target }) => {
      if (target instanceof Node && !this.#menu.parentElement?.contains(target)) {
        this.#open(false);
      }
    });
    document.addEventListener("keydown", ({ key }) => {
      if (key === "Escape") {
        this.#open(false);
      }
    });
  }

  set current(model: string) {
    this.#current = model;
    this.#button.textContent = model.split("/").at(-1) ?? model;
    this.#button.title = model;
  }

  show(models: readonly Model[]): void {
    this.#menu.replaceChildren(...models.map((model) => this.#entry(model)));
  }

  fail(message: string): void {
    if (this.#menu.hidden !== true) {
      this.#menu.replaceChildren(element("p", "", message));
    }
  }

  #entry({ name, summary, problem = "", running = false }: Model): HTMLElement {
    const entry = element("button", "", name) as HTMLButtonElement;
    entry.type = "button";
    entry.role = "menuitemradio";
    entry.disabled = problem !== "";
    entry.ariaCurrent = String(name === this.#current);
    if (running) {
      entry.append(element("small", "tag", "running"));
    }
    entry.append(element("small", "", problem === "" ? summary : `cannot run here: ${problem}`));
    entry.onclick = () => {
      this.#open(false);
      this.#use(name);
    };
    return entry;
  }

  #open(open: boolean): void {
    this.#menu.hidden = !open;
    this.#button.ariaExpanded = String(open);
  }
}
