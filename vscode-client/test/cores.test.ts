import assert from "node:assert/strict";
import { registerHooks } from "node:module";
import { test } from "node:test";

import type { Server } from "../src/server.ts";

const shown: string[] = [];
const window = {
  showInformationMessage: (message: string) => shown.push(`information: ${message}`),
  showErrorMessage: (message: string) => shown.push(`error: ${message}`),
};
Object.assign(globalThis, { vscodeWindow: window });
registerHooks({
  resolve: (specifier, context, next) =>
    specifier === "vscode"
      ? { url: "data:text/javascript,export const window = globalThis.vscodeWindow;", shortCircuit: true }
      : next(specifier, context),
});
const { restartCore, stopCore, unloadModel } = await import("../src/cores.ts");

function serverThat(execute: (command: string) => Promise<unknown>): Server {
  return { client: { execute } } as unknown as Server;
}

for (const command of [restartCore, stopCore, unloadModel]) {
  test(`${command.name} announces success, or shows once why it failed`, async () => {
    shown.length = 0;
    await command(serverThat(() => Promise.resolve(null)));
    assert.match(shown.join("\n"), /^information: midfill: \w+ the (core|model)/);
    shown.length = 0;
    await command(serverThat(() => Promise.reject(new Error("not connected to a core"))));
    assert.deepEqual(shown, ["error: midfill: not connected to a core"]);
  });
}
