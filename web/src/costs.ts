// What a request costs, in words and as a column of a strip.

import { element } from "./elements.ts";

export type CacheOutcome = "hit" | "partial" | "miss";

/** The fields of `protocol.messages.Usage` that the page shows. */
export interface Usage {
  prompt_tokens: number;
  recomputed_tokens: number;
  generated_tokens: number;
}

const MOST_COLUMNS = 240;
const SHORTEST = 0.03; // of the height: a single token is seen

const numbers = new Intl.NumberFormat("en");

export function count(tokens: number): string {
  return numbers.format(tokens);
}

export function milliseconds(ms: number): string {
  return ms < 10 ? ms.toFixed(1) : count(Math.round(ms));
}

export function bytes(size: number): string {
  return size < 1e9 ? `${(size / 1e6).toFixed(size < 1e7 ? 1 : 0)} MB` : `${(size / 1e9).toFixed(1)} GB`;
}

/** Columns of requests, the latest at the right; the tallest column in sight fills the height. */
export class Strip {
  readonly #parent: HTMLElement;
  readonly #shown: { usage: Usage; column: HTMLElement }[] = [];

  constructor(parent: HTMLElement) {
    this.#parent = parent;
  }

  add(usage: Usage, outcome: CacheOutcome | "prefetch", title: string): void {
    const column = element("div", `column ${outcome}`);
    column.title = title;
    column.append(element("i", "computed"), element("i", "resident"), element("i", "generated"));
    this.#shown.push({ usage, column });
    this.#parent.append(column);
    if (this.#shown.length > MOST_COLUMNS) {
      this.#shown.shift()?.column.remove();
    }
    this.#scale();
  }

  #scale(): void {
    const largest = Math.max(1, ...this.#shown.map(({ usage }) => usage.prompt_tokens + usage.generated_tokens));
    for (const { usage, column } of this.#shown) {
      const resident = usage.prompt_tokens - usage.recomputed_tokens;
      const [computedBar, residentBar, generatedBar] = [...column.children] as HTMLElement[];
      setHeight(computedBar, usage.recomputed_tokens, largest);
      setHeight(residentBar, Math.max(0, resident), largest);
      setHeight(generatedBar, usage.generated_tokens, largest);
    }
  }
}

function setHeight(bar: HTMLElement | undefined, tokens: number, largest: number): void {
  const share = tokens === 0 ? 0 : Math.max(SHORTEST, (0.9 * tokens) / largest);
  bar?.style.setProperty("height", `${100 * share}%`);
}
