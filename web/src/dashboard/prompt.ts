// The prompt of the last request, with what was computed of it in the colour of its cache outcome.

import { byId, element } from "../elements.ts";
import type { Answered } from "./events.ts";
import { documentOf } from "./residents.ts";

const PARTS = {
  snippets: "other files",
  prefix: "above the anchor",
  suffix: "behind the cursor",
  increment: "from the anchor to the cursor",
};

export function showPrompt({ session, is_prefetch: isPrefetch, cache_outcome: cacheOutcome = "miss", prompt = [], text = "" }: Answered): void {
  const kind = isPrefetch ? "prefetched prompt" : "last prompt";
  byId("which").textContent = `The ${kind}, of ${documentOf(session).name}`;
  const outcome = isPrefetch ? "prefetch" : cacheOutcome;
  byId("computed-outcome").className = outcome;
  const pieces: HTMLElement[] = [];
  let part = "";
  for (const span of prompt) {
    if (span.part !== part) {
      part = span.part;
      pieces.push(element("b", "", PARTS[span.part]));
    }
    pieces.push(element("span", span.resident ? "span resident" : `span computed ${outcome}`, span.text));
  }
  pieces.push(element("span", "completion", text));
  const shown = byId("prompt");
  shown.replaceChildren(...pieces);
  shown.scrollTop = shown.scrollHeight; // what is typed, and what is computed of it, is at the end
}
