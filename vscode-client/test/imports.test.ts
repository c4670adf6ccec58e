import assert from "node:assert/strict";
import { test } from "node:test";

import { addsImport, certainImport } from "../src/imports.ts";

test("a fix that adds an import is known by its title", () => {
  const adding = [
    'Add import from "./util"', 'Update import from "react"', 'Add "from os import path"', "Import `std::mem`",
    "Import 'List' (java.util)", 'Add import: "fmt"', "Include <vector>", "using System.Text;",
  ];
  const others = ["Add all missing imports", "Remove unused import: os", "Organize Imports", 'Change spelling to "important"', "Adding"];
  assert.deepEqual([...adding, ...others].filter((title) => addsImport({ title })), adding);
});

test("one import is certain, or the only preferred one; of several the user chooses", () => {
  const [a, b, other] = [{ title: "Import `a::X`" }, { title: "Import `b::X`" }, { title: "Qualify `a::X`" }];
  assert.equal(certainImport([other, a]), a);
  assert.equal(certainImport([a, b]), undefined);
  const preferred = { ...b, isPreferred: true };
  assert.equal(certainImport([a, preferred]), preferred);
  assert.equal(certainImport([{ ...other, isPreferred: true }]), undefined);
});
