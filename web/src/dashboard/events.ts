// The core's stream of server-sent events, read with the key in a header, and opened again when it ends.

import { bearer } from "../access.ts";
import type { CacheOutcome, Usage } from "../costs.ts";

const RETRY_MS = 1500;

const ENDED = "The core has ended. An editor starts it again, and so does";

export interface PromptSpan {
  part: "snippets" | "prefix" | "suffix" | "increment";
  resident: boolean;
  text: string;
}

export interface Answered {
  at: number;
  client: string;
  session: string;
  is_prefetch: boolean;
  outcome: string;
  message?: string;
  // With the outcome "completed":
  cache_outcome?: CacheOutcome;
  usage?: Usage;
  text?: string;
  prompt?: PromptSpan[];
}

export interface Tier {
  name: string;
  used_bytes: number;
  budget_bytes: number;
  tokens: number;
}

export interface Resident {
  session: string;
  workspace: number;
  tiers: number[];
}

export interface Snapshot {
  event: "snapshot";
  waiting: number;
  at_work: number;
  process_bytes: number;
  evicted_tokens: number;
  tiers: Tier[];
  residents: Resident[];
  answered: Answered | null;
}

export interface Status {
  event: "status";
  state: string;
  model: string;
  device: string;
  detail: string;
  progress: number | null;
  context_tokens: number;
}

/** Follow the events until the page is left; `lost` is called whenever the stream ends. */
export async function follow(key: string, received: (event: Snapshot | Status) => void, lost: (why: string) => void): Promise<never> {
  for (;;) {
    lost(await readOnce(key, received));
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function readOnce(key: string, received: (event: Snapshot | Status) => void): Promise<string> {
  const response = await unlessLost(fetch("/dashboard/events", { headers: bearer(key) }));
  if (response === undefined) {
    return ENDED;
  }
  if (response.status === 401) {
    return "This core does not know the page's key: it was started after the page was opened. Open the page again by";
  }
  if (!response.ok || response.body === null) {
    return `The core answers HTTP ${response.status}. Look at it with`;
  }
  let unread = "";
  for await (const text of chunks(response.body)) {
    const events = (unread + text).split("\n\n");
    unread = events.pop() ?? "";
    for (const event of events) {
      received(JSON.parse(event.slice("data: ".length)) as Snapshot | Status);
    }
  }
  return ENDED;
}

async function* chunks(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  for (;;) {
    const read = await unlessLost(reader.read());
    if (read === undefined || read.done) {
      return;
    }
    yield read.value;
  }
}

/** What is awaited; undefined if the connection is lost, which fetch and its stream report as a TypeError. */
async function unlessLost<T>(awaited: Promise<T>): Promise<T | undefined> {
  try {
    return await awaited;
  } catch (error) {
    if (error instanceof TypeError) {
      return undefined;
    }
    throw error;
  }
}
