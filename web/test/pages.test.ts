// The playground as a user sees it, with a real core and the tiny model.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import type { Page } from "playwright-core";

import { Midfill, PATIENCE_MS, picture } from "./midfill.ts";

const midfill = new Midfill();
before(() => midfill.start(), { timeout: PATIENCE_MS });
after(() => midfill.stop(), { timeout: PATIENCE_MS });

async function playground(options: Parameters<Midfill["open"]>[1] = {}): Promise<Page> {
  const page = await midfill.open(midfill.url, options);
  await page.locator("#state.ready").waitFor();
  await ghost(page);
  return page;
}

/** The suggestion that is shown, as soon as there is one. */
async function ghost(page: Page): Promise<string> {
  await page.locator(".cm-ghost").first().waitFor();
  return (await page.locator(".cm-ghost").allTextContents()).join("\n");
}

/** The text of the cursor's line, without the suggestion. */
async function line(page: Page): Promise<string> {
  return await page.locator(".cm-activeLine").evaluate((shown) => {
    const copy = shown.cloneNode(true) as Element;
    copy.querySelectorAll(".cm-ghost").forEach((one) => {
      one.remove();
    });
    return copy.textContent.trimStart();
  });
}

function parseTokens(text: string): number {
  return Number(text.replaceAll(",", ""));
}

test("a key shows a suggestion, and what little it computed", async () => {
  const page = await playground();
  await page.keyboard.type("quantity if zz > ", { delay: 200 }); // no suggestion continues so
  const hit = page.locator("#strip .column.hit");
  await hit.nth(1).waitFor({ state: "attached" });
  const [resident = 0, recomputed = 99] = ((await hit.last().getAttribute("title")) ?? "").match(/[\d,]+/g)?.map(parseTokens) ?? [];
  assert.ok(resident > 200 && recomputed <= 8, `${resident} resident, ${recomputed} recomputed`);
  assert.notEqual(await page.locator("#computed").innerText(), "–");
  await ghost(page);
  await picture(page, "playground");
});

test("Tab accepts all, Ctrl+Right a word, Esc nothing", async () => {
  const page = await playground();
  await page.getByRole("tab", { name: "events.js" }).click(); // its suggestion has several words
  const [before, whole] = [await line(page), await ghost(page)];
  await page.keyboard.press("Control+ArrowRight");
  const word = (await line(page)).slice(before.length);
  assert.ok(word.length > 0 && whole.startsWith(word), `${word} of ${whole}`);
  assert.equal(word + (await ghost(page)), whole);
  await page.keyboard.press("Escape");
  await page.locator(".cm-ghost").waitFor({ state: "detached" });
  assert.equal(await line(page), before + word);
  await page.keyboard.press("Alt+\\");
  const [first = ""] = (await ghost(page)).split("\n");
  assert.ok(first.length > 0);
  await page.keyboard.press("Tab");
  assert.equal(await line(page), before + word + first);
});

test("an edit drops a suggestion that it does not continue, and undo brings the text back", async () => {
  const page = await playground();
  const before = await line(page);
  const shown = await ghost(page);
  await page.keyboard.type("\u{1F986}");
  await page.waitForFunction((text) => {
    const ghosts = document.querySelector("#editor")?.shadowRoot?.querySelectorAll(".cm-ghost") ?? [];
    return [...ghosts].map((one) => one.textContent).join("\n") !== text;
  }, shown);
  await page.keyboard.press("Control+z");
  await ghost(page);
  assert.equal(await line(page), before);
  assert.equal(await page.locator("#notice").isHidden(), true);
});

test("an answer is not shown where text was selected in the meantime", async () => {
  const page = await playground();
  let isHolding = false;
  const held: (() => void)[] = [];
  await page.routeWebSocket("**/playground/lsp", (socket) => {
    socket.connectToServer().onMessage((message) => {
      const send = (): void => {
        socket.send(message);
      };
      if (isHolding && String(message).includes('"insertText"')) {
        held.push(send);
      } else {
        send();
      }
    });
  });
  await page.reload();
  await page.locator("#state.ready").waitFor();
  await ghost(page);
  await page.keyboard.press("Escape");
  await page.locator(".cm-ghost").first().waitFor({ state: "detached" });
  isHolding = true;
  await page.keyboard.press("Alt+\\");
  for (const end = Date.now() + PATIENCE_MS; held.length === 0 && Date.now() < end; ) {
    await page.waitForTimeout(50);
  }
  assert.notEqual(held.length, 0);
  await page.keyboard.press("Shift+ArrowLeft");
  held.forEach((send) => {
    send();
  });
  await page.waitForTimeout(500);
  assert.equal(await page.locator(".cm-ghost").count(), 0);
});

test("every sample is completed, also at 900 pixels in the dark", async () => {
  const page = await playground({ viewport: { width: 900, height: 700 }, colorScheme: "dark" });
  const answered = page.locator("#strip .column:not(.prefetch)");
  await answered.first().waitFor({ state: "attached" }); // the first sample, which the page begins with
  for (const tab of (await page.getByRole("tab").all()).slice(1)) {
    const before = await answered.count();
    await tab.click();
    await answered.nth(before).waitFor({ state: "attached" });
    assert.equal(await page.locator(".cm-editor .tok-keyword").first().isVisible(), true);
  }
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await page.getByRole("tab").first().click();
  await picture(page, "playground-dark-900");
});

test("another model is chosen, and answers", async () => {
  const page = await playground();
  await page.locator("#model").click();
  await page.getByRole("menuitemradio", { name: /tiny.*running/ }).waitFor();
  await picture(page, "models");
  await page.getByRole("menuitemradio", { name: /^bundled/ }).click();
  await page.locator("#model[title=bundled]").waitFor();
  await page.locator("#state.ready").waitFor();
  await page.keyboard.type("x", { delay: 150 });
  await page.locator("#strip .column").nth(1).waitFor({ state: "attached" });
  assert.match(midfill.run("core", "list"), /bundled +ready/);
});

test("a printed link opens the page in any browser; without a link it says what to do", async () => {
  const stranger = await midfill.open(midfill.url.replace(/#.*/, "#guessed"));
  await stranger.locator("#notice code", { hasText: "midfill play" }).waitFor();
  assert.deepEqual(midfill.problems.splice(0).map((problem) => problem.includes("401")), [true]); // the browser logs the answer
});

test("the pages report no error, and request nothing from elsewhere", () => {
  assert.deepEqual(midfill.problems, []);
});
