import assert from "node:assert/strict";
import { test } from "node:test";

import { run } from "../src/processes.ts";

test("lines of both streams are seen, and the status is returned", async () => {
  const lines: string[] = [];
  const script = 'echo out; echo "$WORD" >&2; exit 3';
  const status = await run("/bin/sh", ["-c", script], {
    environment: { WORD: "err" },
    onLine: (line) => lines.push(line),
  });
  assert.equal(status, 3);
  assert.deepEqual(lines.sort(), ["err", "out"]);
});

test("a command that does not exist is an error", async () => {
  await assert.rejects(run("/nowhere/at-all", []), /ENOENT/);
});

test("breaking off ends the command and what it has started", async () => {
  const breaking = new AbortController();
  const started = run("/bin/sh", ["-c", "sleep 60 & echo started; wait"], {
    signal: breaking.signal,
    onLine: () => {
      breaking.abort(new Error("broken off"));
    },
  });
  await assert.rejects(started, /broken off/);
});

test("what is broken off beforehand is not started", async () => {
  await assert.rejects(run("/bin/true", [], { signal: AbortSignal.abort(new Error("broken off")) }), /broken off/);
});
