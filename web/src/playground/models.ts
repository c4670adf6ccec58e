// The model chooser: what this machine has, what runs, and why something cannot.

import { bytes } from "../costs.ts";
import { byId, element } from "../elements.ts";
import type { Core, Model } from "./messages.ts";

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

  show(models: readonly Model[], cores: readonly Core[]): void {
    const running = new Set(cores.filter(({ state }) => state !== "stopped").map(({ model }) => model));
    const here = models.filter((model) => model.here);
    this.#menu.replaceChildren(...here.map((model) => this.#entry(model, running.has(model.name))));
  }

  fail(message: string): void {
    if (this.#menu.hidden !== true) {
      this.#menu.replaceChildren(element("p", "", message));
    }
  }

  #entry(model: Model, running: boolean): HTMLElement {
    const { name, problem } = model;
    const entry = element("button", "", name) as HTMLButtonElement;
    entry.type = "button";
    entry.role = "menuitemradio";
    entry.disabled = problem !== "";
    entry.ariaCurrent = String(name === this.#current);
    if (running) {
      entry.append(element("small", "tag", "running"));
    }
    entry.append(element("small", "", problem === "" ? summary(model) : `cannot run here: ${problem}`));
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

function summary({ source, family, sizeBytes, quantization, runsWith }: Model): string {
  const size = sizeBytes === 0 ? "" : bytes(sizeBytes);
  const parts = [source, family, size, quantization, runsWith === "" ? "" : `runs with ${runsWith}`];
  return parts.filter((part) => part !== "").join(", ");
}
