// Bundles the extension into one file, with the licences of what is in it beside it; or, with
// `tests`, each test into a file of its own.

import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { build } from "esbuild";

const COMMON = {
  bundle: true,
  platform: "node",
  format: "cjs",
  target: "node20",
  logLevel: "warning",
};

if (process.argv.includes("tests")) {
  const files = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
  await build({
    ...COMMON,
    entryPoints: files.map((name) => `test/${name}`),
    outdir: "dist/tests",
  });
} else {
  const { metafile } = await build({
    ...COMMON,
    entryPoints: ["src/extension.ts"],
    outfile: "dist/extension.js",
    external: ["vscode"],
    minify: true,
    metafile: true,
  });
  writeFileSync("dist/THIRD-PARTY.txt", licences(Object.keys(metafile.inputs)));
}

/** The name and the licence text of each package that a bundle was made of. */
function licences(inputs) {
  const folders = inputs
    .map((input) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1])
    .filter((folder) => folder !== undefined);
  return [...new Set(folders)].sort().map(licence).join("\n");
}

function licence(folder) {
  const { name, version, license } = JSON.parse(readFileSync(path.join(folder, "package.json")));
  const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
  if (file === undefined) {
    throw new Error(`${name} is bundled and has no file with its licence`);
  }
  const text = readFileSync(path.join(folder, file), "utf8").trim();
  return `${name} ${version} (${license})\n\n${text}\n\n${"-".repeat(72)}\n`;
}
