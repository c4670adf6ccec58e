import assert from "node:assert/strict";
import { test } from "node:test";

import { MoveTracker, type Place } from "../src/moves.ts";

function at(version: number, line: number, character: number, uri = "file:///a.py"): Place {
  return { uri, version, line, character };
}

test("a cursor that goes elsewhere in the same text has moved", () => {
  const tracker = new MoveTracker();
  tracker.movedTo(at(1, 0, 0));
  assert.equal(tracker.movedTo(at(1, 5, 0)), true);
  assert.equal(tracker.movedTo(at(1, 5, 0)), false);
});

test("a cursor that follows an edit has not moved", () => {
  const tracker = new MoveTracker();
  tracker.movedTo(at(1, 0, 0));
  assert.equal(tracker.movedTo(at(2, 0, 1)), false);
  assert.equal(tracker.movedTo(at(2, 9, 0)), true);
});

test("another document is a move", () => {
  const tracker = new MoveTracker();
  assert.equal(tracker.movedTo(at(1, 0, 0)), true);
  assert.equal(tracker.movedTo(at(7, 0, 0, "file:///b.py")), true);
});
