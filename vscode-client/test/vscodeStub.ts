// Stands in for the module "vscode", which only an editor has.

import { registerHooks } from "node:module";

/** From the next import on, "vscode" exports what the stub has; and so do those other modules, which are named as in imports. */
export function stubVscode(stub: object, ...others: string[]): void {
  Object.assign(globalThis, { vscodeStub: stub });
  const exported = Object.keys(stub).map((name) => `export const ${name} = globalThis.vscodeStub.${name};`);
  const url = `data:text/javascript,${exported.join("")}`;
  registerHooks({
    resolve: (specifier, context, next) =>
      ["vscode", ...others].includes(specifier) ? { url, shortCircuit: true } : next(specifier, context),
  });
}
