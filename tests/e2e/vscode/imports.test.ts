// Missing imports of accepted text, by VS Code's own TypeScript: one key adds them.

import { after, before, test } from "node:test";

import { ScriptedCore } from "./scriptedCore.ts";
import { until, Workbench } from "./workbench.ts";

process.env.MIDFILL_CORE_TOKEN = "secret"; // of the scripted core
const PATHS = "export function readAll(path: string): string {\n  return path;\n}\n";
const TEXT = "export const first = 1;\n";
const IMPORT = 'import { readAll } from "./paths";\n';
const workbench = new Workbench();
let core: ScriptedCore;

before(async () => {
  core = await ScriptedCore.start();
  core.do({ answer: "readAll(String(first));" });
  await workbench.start();
  workbench.settings({}, { "midfill.core": core.url });
});
after(async () => {
  await workbench.stop();
  core.stop();
});

for (const [name, keys, accepted] of [
  ["a word", ["Control+ArrowRight"], "readAll"],
  ["a suggestion", ["Tab"], "readAll(String(first));"],
] as const) {
  test(`a key adds the import that ${name} lacks, wherever edits have moved it`, async () => {
    const beside = { "paths.ts": PATHS, "tsconfig.json": "{}" };
    const window = await workbench.openUnready("demo.ts", TEXT, undefined, beside);
    await window.untilStatus(/^midfill/);
    await window.toEnd();
    await window.type("const all = ");
    await window.untilGhost("readAll(String(first));");
    await window.press(...keys, "Escape");
    await until("the text", () => window.wire.text(window.file) === `${TEXT}const all = ${accepted}`);
    await window.press("Control+Home");
    await window.page.keyboard.type("export const zero = 0;\n");
    const expected = `${IMPORT}export const zero = 0;\n${TEXT}const all = ${accepted}`;
    const said = (): string => window.wire.text(window.file).replace(`${IMPORT}\n`, IMPORT);
    await until("the import", async () => {
      await window.press("Alt+i"); // TypeScript takes its time to find what is missing
      await window.page.waitForTimeout(1000);
      return said() === expected;
    }, said);
    await window.close(`imports ${name}`);
  });
}
