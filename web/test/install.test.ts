// From nothing to ghost text with installed wheels: the steps in the playground, with seconds. tests/e2e/install.sh runs this.

import { test } from "node:test";

import { Midfill } from "./midfill.ts";

test("ghost text in the playground of installed wheels", { skip: process.env.TEST_MIDFILL === undefined }, async () => {
  const midfill = new Midfill("bundled");
  let began = Date.now();
  const tell = (step: string): void => {
    console.log(`${((Date.now() - began) / 1000).toFixed(1)} s: ${step}`); // at once, unlike a diagnostic
    began = Date.now();
  };
  try {
    await midfill.start();
    tell("midfill play has printed its address, and a browser runs");
    const page = await midfill.open(midfill.url);
    await page.locator("#state.ready").waitFor();
    tell("the page is open, and the model loaded");
    await page.locator(".cm-ghost").first().waitFor();
    tell("ghost text, without a key");
  } finally {
    await midfill.stop();
  }
});
