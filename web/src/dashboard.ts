// The dashboard: what is resident in a core, and what each request costs, as it happens.

import { pageKey } from "./access.ts";
import { bytes, count, type CacheOutcome, milliseconds, Strip, type Usage } from "./costs.ts";
import { type Answered, follow, type Snapshot, type Status } from "./dashboard/events.ts";
import { showPrompt } from "./dashboard/prompt.ts";
import { documentOf, showResidents } from "./dashboard/residents.ts";
import { Times } from "./dashboard/times.ts";
import { byId, element, notice } from "./elements.ts";

const REMEMBERED = 200; // suggestions that the tiles summarize

class Dashboard {
  readonly #strip = new Strip(byId("strip"));
  readonly #times = new Times(byId("times"));
  readonly #suggestions: { outcome: CacheOutcome; usage: Usage; ms: number }[] = [];

  receive(event: Snapshot | Status): void {
    if (event.event === "status") {
      this.#showStatus(event);
      return;
    }
    const work = event.at_work > 0 ? `${event.at_work} at work` : "";
    set("queue", String(event.waiting), work);
    set("memory", bytes(event.process_bytes));
    showResidents(event);
    if (event.answered?.usage !== undefined) {
      this.#showAnswer(event.answered, event.answered.usage);
    }
  }

  #showStatus({ state, model, device, detail, progress }: Status): void {
    notice(state === "failed" ? detail : "");
    byId("model").textContent = model;
    const share = progress === null ? "" : ` ${Math.round(100 * progress)} %`;
    byId("state").textContent = state === "ready" ? `ready, ${device}` : `${state}${share}`;
    byId("state").className = `state ${state}`;
    byId("state").title = detail;
  }

  #showAnswer(answered: Answered, usage: Usage): void {
    const { is_prefetch: isPrefetch, session, cache_outcome: cacheOutcome = "miss" } = answered;
    const ms = usage.queue_ms + (usage.prepare_ms ?? 0) + usage.prefill_ms + usage.decode_ms;
    const outcome = isPrefetch ? "prefetch" : cacheOutcome;
    if (!isPrefetch || usage.recomputed_tokens > 0) {
      const tokens = `${count(usage.recomputed_tokens)} of ${count(usage.prompt_tokens)} tokens recomputed`;
      const title = `${documentOf(session).name}: ${outcome}, ${tokens}, ${count(usage.generated_tokens)} generated, `;
      this.#strip.add(usage, outcome, `${title}${milliseconds(ms)} ms`);
      this.#times.add(ms, outcome);
      showPrompt(answered);
    }
    if (!isPrefetch) {
      this.#suggestions.push({ outcome: cacheOutcome, usage, ms });
      if (this.#suggestions.length > REMEMBERED) {
        this.#suggestions.shift();
      }
      this.#summarize();
    }
  }

  #summarize(): void {
    const all = this.#suggestions;
    const sum = (of: (usage: Usage) => number): number => all.reduce((total, { usage }) => total + of(usage), 0);
    const hits = all.filter(({ outcome }) => outcome === "hit").length;
    const times = all.map(({ ms }) => ms).sort((one, other) => one - other);
    const recomputed = sum((usage) => usage.recomputed_tokens);
    const decodeSeconds = sum((usage) => usage.decode_ms) / 1000;
    set("hit", `${Math.round((100 * hits) / all.length)} %`, `of ${count(all.length)}`);
    set("median", milliseconds(times[Math.floor(times.length / 2)] ?? 0), "ms");
    set("recomputed", ((100 * recomputed) / Math.max(1, sum((usage) => usage.prompt_tokens))).toFixed(1), "% of tokens");
    set("speed", decodeSeconds > 0 ? count(Math.round(sum((usage) => usage.generated_tokens) / decodeSeconds)) : "–", "tokens/s");
  }
}

function set(id: string, figure: string, unit = ""): void {
  byId(id).replaceChildren(figure, " ", element("small", "", unit));
}

async function main(): Promise<void> {
  const key = await pageKey();
  if (key === undefined) {
    notice("This link was used before, or is too old. Open the dashboard by", "midfill dashboard");
    return;
  }
  const dashboard = new Dashboard();
  await follow(
    key,
    (event) => {
      dashboard.receive(event);
    },
    (why) => {
      byId("state").className = "state failed";
      byId("state").textContent = "not connected";
      notice(why, "midfill dashboard");
    },
  );
}

void main();
