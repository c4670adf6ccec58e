// The picture in the documentation: the bundled model, which must be right.

import { test } from "node:test";

import { READY, Workbench } from "./workbench.ts";

const TEXT = `class Queue:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("the queue is empty")
        return self.items.pop(0)

`;
const TYPED = "    def peek(self):";
const RIGHT = `if not self.items:
            raise IndexError("the queue is empty")
        return self.items[0]`;

const LOADING_MS = 5 * 60_000;

const skip = process.env.E2E_SCREENSHOTS === undefined; // what the model says may change

test("a picture of a suggestion that is right", { skip }, async () => {
  const workbench = new Workbench(undefined, { MIDFILL_MODEL: "bundled" });
  await workbench.start();
  try {
    workbench.settings({ "midfill.holdBackPercent": 20 });
    const window = await workbench.openUnready("queue.py", TEXT);
    await window.untilStatus(READY, LOADING_MS);
    await window.toEnd();
    await window.type(TYPED);
    await window.press("Enter");
    await window.untilGhost(RIGHT);
    await window.untilStatus(READY);
    await window.picture("vscode");
    await window.page.close();
  } finally {
    await workbench.stop();
  }
});
