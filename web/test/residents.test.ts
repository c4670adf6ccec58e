import assert from "node:assert/strict";
import { test } from "node:test";

import { documentOf } from "../src/dashboard/residents.ts";

test("a document is named by the end of its address, and other sessions by their own names", () => {
  assert.deepEqual(documentOf("vscode-1/file:///work/a%20b.py"), { name: "a b.py", place: "file:///work/a b.py" });
  assert.deepEqual(documentOf("http/100%"), { name: "100%", place: "100%" });
});
