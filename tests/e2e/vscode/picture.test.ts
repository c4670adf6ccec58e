// The picture in the documentation: the bundled model, which must be right.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { READY, Workbench } from "./workbench.ts";

const TEXT = `import csv
import json


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_csv(path, rows):
`;
const TYPED = "    with open(pa";
const RIGHT = /^th, "w", encoding="utf-8", newline="".*\) as file:/;

const workbench = new Workbench(undefined, { MIDFILL_MODEL: "bundled" });

before(() => workbench.start());
after(() => workbench.stop());

test("a picture of a suggestion that is right", async () => {
  workbench.settings({ "midfill.holdBackPercent": 20, "midfill.shortenUnlikely": true });
  const window = await workbench.open("tables.py", TEXT);
  await window.type(TYPED);
  const { insertText } = await window.untilSuggestion();
  assert.match(insertText, RIGHT);
  await window.untilStatus(READY);
  await window.picture("vscode");
  await window.page.close();
});
