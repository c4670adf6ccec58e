// What is resident: per document and tier, and of the tiers' budgets.

import { bytes, count } from "../costs.ts";
import { byId, element } from "../elements.ts";
import type { Resident, Snapshot, Tier } from "./events.ts";

export function showResidents({ tiers, residents, evicted_tokens, answered }: Snapshot): void {
  const names = ["workspace", ...tiers.map(({ name }) => name)];
  const documents = byDocument(residents);
  const now = answered === null ? "" : documentOf(answered.session).place;
  const rows = documents.map((one) => row(one, names.length, documents, one.place === now));
  byId("residents").replaceChildren(...(residents.length === 0 ? [] : [head(names), body(rows)]));
  byId("nothing").hidden = residents.length > 0;
  byId("budgets").replaceChildren(...tiers.map(budget));
  byId("evicted").textContent = evicted_tokens === 0 ? "" : `${count(evicted_tokens)} tokens evicted`;
}

/** `client/document` as the document's name, and where it is; the client's name changes with each of its runs. */
export function documentOf(session: string): { name: string; place: string } {
  const path = decoded(session.slice(session.indexOf("/") + 1));
  const name = path.split(/[/:]/).at(-1) ?? path;
  return { name: name === "" ? session : name, place: path };
}

/** HTTP clients name their sessions as they like, so not every `%` begins an escape. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

interface DocumentResidency {
  place: string;
  name: string;
  sessions: number;
  tokens: number[]; // in workspaces, and in each tier
}

/** A document's sessions together: each has a workspace of its own, and they share the store's pages. */
function byDocument(residents: readonly Resident[]): DocumentResidency[] {
  const found = new Map<string, DocumentResidency>();
  for (const { session, workspace, tiers } of residents) {
    const { name, place } = documentOf(session);
    const known = found.get(place) ?? { place, name, sessions: 0, tokens: [0] };
    known.sessions += 1;
    known.tokens[0] = (known.tokens[0] ?? 0) + workspace;
    tiers.forEach((tokens, level) => (known.tokens[level + 1] = Math.max(known.tokens[level + 1] ?? 0, tokens)));
    found.set(place, known);
  }
  return [...found.values()];
}

function head(names: readonly string[]): HTMLElement {
  const made = element("thead");
  const line = element("tr");
  line.append(...["document", ...names].map((name) => element("th", "", name)));
  made.append(line);
  return made;
}

function body(rows: readonly HTMLElement[]): HTMLElement {
  const made = element("tbody");
  made.append(...rows);
  return made;
}

function row(one: DocumentResidency, columns: number, all: readonly DocumentResidency[], isNow: boolean): HTMLElement {
  const made = element("tr", isNow ? "now" : "");
  const title = element("th", "", `${one.name} `);
  title.title = one.place;
  title.append(element("small", "", one.sessions > 1 ? `${one.sessions} sessions` : ""));
  const most = Math.max(1, ...all.flatMap(({ tokens }) => tokens));
  const tokens = Array.from({ length: columns }, (_, index) => one.tokens[index] ?? 0);
  made.append(title, ...tokens.map((number) => cell(number, number / most)));
  return made;
}

function cell(tokens: number, share: number): HTMLElement {
  const made = element("td");
  made.append(meter(share, count(tokens)));
  return made;
}

function budget({ name, used_bytes, budget_bytes, tokens }: Tier): HTMLElement {
  const made = element("div", "budget");
  const share = budget_bytes === 0 ? 0 : used_bytes / budget_bytes;
  const of = budget_bytes === 0 ? "" : `${bytes(used_bytes)} of ${bytes(budget_bytes)}`;
  made.append(element("span", "", name), meter(share, `${count(tokens)} tokens`), element("output", "", of));
  return made;
}

function meter(share: number, text: string): HTMLElement {
  const made = element("span", "meter");
  const bar = element("i");
  bar.style.width = `${Math.min(100, 100 * share)}%`;
  made.append(bar, element("span", "", text));
  return made;
}
