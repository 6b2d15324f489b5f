/** Where the program `sspec-assist` lies. Knows files only by the question whether there is one.
 *
 * What the user set holds, even if nothing lies there; then the PATH; then `.venv` of the folders
 * of the workspace, which only a trusted workspace may offer: it is a program to be run. */

import * as path from "node:path";

export interface Surroundings {
  readonly configured: string;
  readonly folders: readonly string[];
  readonly trusted: boolean;
  readonly searchPath: string;
  readonly home: string;
  readonly windows: boolean;
  readonly isFile: (file: string) => boolean;
}

export interface Found {
  readonly program: string | undefined;
  /** The places that were looked at, for the sentence that says it was not found. */
  readonly looked: readonly string[];
}

export function locate(around: Surroundings): Found {
  const places = candidates(around);
  return { program: places.find(around.isFile), looked: places };
}

function candidates(around: Surroundings): string[] {
  const join = around.windows ? path.win32.join : path.posix.join;
  const configured = around.configured.trim();
  if (configured) {
    return expanded(configured, around, join);
  }
  const name = around.windows ? "sspec-assist.exe" : "sspec-assist";
  const searched = around.searchPath
    .split(around.windows ? ";" : ":")
    .filter((folder) => folder !== "")
    .map((folder) => join(folder, name));
  const inside = around.trusted
    ? around.folders.map((folder) =>
        join(folder, ".venv", around.windows ? "Scripts" : "bin", name),
      )
    : [];
  return [...searched, ...inside];
}

function expanded(
  configured: string,
  around: Surroundings,
  join: (...parts: string[]) => string,
): string[] {
  const variable = "${workspaceFolder}";
  if (configured.includes(variable)) {
    return around.folders.map((folder) => configured.replaceAll(variable, folder));
  }
  return [/^~(?=[/\\]|$)/.test(configured) ? join(around.home, configured.slice(1)) : configured];
}
