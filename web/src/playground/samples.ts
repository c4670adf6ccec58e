// The sample files; «cursor» in a text is where the cursor begins.

import inventory from "../../samples/inventory.py.txt";
import queue from "../../samples/queue.rs.txt";
import routes from "../../samples/routes.go.txt";
import cart from "../../samples/cart.ts.txt";
import events from "../../samples/events.js.txt";

export interface Sample {
  name: string;
  language: string;
  text: string;
  cursor: number;
}

const CURSOR = "«cursor»";

export const SAMPLES: readonly Sample[] = [
  sample("inventory.py", "python", inventory),
  sample("cart.ts", "typescript", cart),
  sample("events.js", "javascript", events),
  sample("queue.rs", "rust", queue),
  sample("routes.go", "go", routes),
];

function sample(name: string, language: string, marked: string): Sample {
  const cursor = marked.indexOf(CURSOR);
  return { name, language, text: marked.replace(CURSOR, ""), cursor: Math.max(0, cursor) };
}
