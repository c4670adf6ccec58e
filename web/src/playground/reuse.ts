// What the last key cost, and the strip of the keys before it.

import { count, milliseconds, Strip } from "../costs.ts";
import { byId } from "../elements.ts";
import type { Cost } from "./messages.ts";

const VERDICTS = {
  hit: "Hit: only what you typed was computed",
  partial: "Partial hit: a part of the prompt was computed again",
  miss: "Miss: the whole prompt was computed",
};

export class Reuse {
  readonly #strip = new Strip(byId("strip"));

  show(cost: Cost): void {
    const { usage } = cost;
    const resident = Math.max(0, usage.prompt_tokens - usage.recomputed_tokens);
    if (cost.source === "typed") {
      this.#figures(cost.cacheOutcome, "Known already: nothing was computed", ["–", "0", "0", "0"]);
      return;
    }
    const ms = milliseconds(cost.ms);
    const parts = `${count(resident)} resident, ${count(usage.recomputed_tokens)} recomputed, `;
    const title = `${parts}${count(usage.generated_tokens)} generated tokens, ${ms} ms`;
    if (usage.recomputed_tokens > 0 || !cost.isPrefetch) {
      this.#strip.add(usage, cost.isPrefetch ? "prefetch" : cost.cacheOutcome, cost.isPrefetch ? `prefetch for the next key: ${title}` : title);
    }
    if (!cost.isPrefetch) {
      const tokens = [resident, usage.recomputed_tokens, usage.generated_tokens].map(count);
      this.#figures(cost.cacheOutcome, VERDICTS[cost.cacheOutcome], [...tokens, ms]);
    }
  }

  #figures(outcome: string, verdict: string, figures: readonly string[]): void {
    byId("verdict").textContent = verdict;
    for (const [index, id] of ["resident", "computed", "generated", "time"].entries()) {
      byId(id).textContent = figures[index] ?? "";
    }
    byId("time").append(unit());
    byId("computed").parentElement?.setAttribute("class", `computed ${outcome}`);
  }
}

function unit(): HTMLElement {
  const made = document.createElement("small");
  made.textContent = " ms";
  return made;
}
