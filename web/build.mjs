// Builds the page into the folder that `midfill play` serves it from.

import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const folder = "../midfill/static";

rmSync(folder, { recursive: true, force: true });
const { metafile } = await build({
  entryPoints: ["src/playground.ts", "src/playground.css"],
  bundle: true,
  minify: true,
  format: "iife", // browsers send an Origin with modules, which the core refuses
  target: "es2022",
  loader: { ".txt": "text" },
  metafile: true,
  outdir: folder,
});
for (const file of ["playground.html", "icon.svg"]) {
  cpSync(`src/${file}`, `${folder}/${file}`);
}

// The bundles hold other projects' code, whose licences come with it.
const bundled = new Set(
  Object.keys(metafile.inputs).flatMap((input) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input)?.[1] ?? []),
);
const licences = [...bundled].sort().map((name) => {
  const file = ["LICENSE", "LICENSE.md", "LICENCE"].map((one) => `node_modules/${name}/${one}`).find(existsSync);
  if (file === undefined) {
    throw new Error(`${name} has no licence file`);
  }
  return `${name}\n\n${readFileSync(file, "utf-8")}`;
});
writeFileSync(`${folder}/LICENSES.txt`, licences.join(`\n${"-".repeat(80)}\n\n`));
