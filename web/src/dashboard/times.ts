// The plot of the requests' times, coloured by cache outcome.

import uPlot from "uplot";

import type { CacheOutcome } from "../costs.ts";

const KEPT = 240;
const HEIGHT = 150;
const KINDS = ["hit", "partial", "miss", "prefetch"] as const;

export class Times {
  readonly #parent: HTMLElement;
  readonly #taken: { ms: number; outcome: CacheOutcome | "prefetch" }[] = [];
  #plot: uPlot | undefined;

  constructor(parent: HTMLElement) {
    this.#parent = parent;
    new ResizeObserver(() => {
      this.#plot?.setSize({ width: parent.clientWidth, height: HEIGHT });
    }).observe(parent);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.#plot?.destroy();
      this.#plot = undefined;
      this.#draw();
    });
  }

  add(ms: number, outcome: CacheOutcome | "prefetch"): void {
    this.#taken.push({ ms: Math.max(0.1, ms), outcome });
    if (this.#taken.length > KEPT) {
      this.#taken.shift();
    }
    this.#draw();
  }

  #draw(): void {
    if (this.#taken.length === 0) {
      return;
    }
    // The latest at the right, as in the strip of columns above.
    const data: uPlot.AlignedData = [
      this.#taken.map((_, index) => index - this.#taken.length + 1),
      ...KINDS.map((outcome) => this.#taken.map((one) => (one.outcome === outcome ? one.ms : null))),
    ];
    this.#plot ??= this.#make();
    this.#plot.setData(data);
  }

  #make(): uPlot {
    const colour = (name: string): string => resolved(this.#parent, `var(--${name})`);
    const axis = { stroke: colour("soft"), ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const points = { show: true, size: 5 };
    return new uPlot(
      {
        width: this.#parent.clientWidth,
        height: HEIGHT,
        cursor: { show: false },
        legend: { show: false },
        scales: {
          x: { time: false, range: (_, __, max) => [max - KEPT / 2, max + 1] },
          // eslint-disable-next-line @typescript-eslint/no-unsafe-enum-assignment -- uPlot's enum is in its types alone
          y: { distr: 3 },
        },
        axes: [
          {
            ...axis,
            size: 28,
            grid: { show: false },
            values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "now" : String(tick))),
          },
          {
            ...axis,
            size: 64,
            grid: { stroke: colour("line"), width: 1, filter: (_, ticks) => ticks.map(ifPowerOfTen) },
            filter: (_, ticks) => ticks.map(ifPowerOfTen),
            values: (_, ticks) => ticks.map((tick: number | null) => (tick === null ? "" : `${tick} ms`)),
          },
        ],
        series: [
          {},
          ...KINDS.map((outcome) => ({ stroke: colour(outcome), paths: () => null, points: { ...points, fill: colour(outcome) } })),
        ],
      },
      [[]],
      this.#parent,
    );
  }
}

function ifPowerOfTen(tick: number): number | null {
  return Number.isInteger(Math.log10(tick)) ? tick : null;
}

/** A colour of the style sheet as a canvas takes it: without `light-dark()`. */
function resolved(parent: HTMLElement, value: string): string {
  const probe = document.createElement("span");
  probe.style.color = value;
  parent.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
