import assert from "node:assert/strict";
import { test } from "node:test";
import { type Surroundings, locate } from "../src/locate";

function found(files: string[], changes: Partial<Surroundings> = {}): string | undefined {
  return locate({
    configured: "",
    folders: ["/ws"],
    trusted: true,
    searchPath: "/usr/bin:/opt/bin",
    home: "/home/me",
    windows: false,
    isFile: (file) => files.includes(file),
    ...changes,
  }).program;
}

const ON_PATH = "/opt/bin/sspec-assist";
const IN_WORKSPACE = "/ws/.venv/bin/sspec-assist";

test("the path comes before the workspace", () => {
  assert.equal(found([IN_WORKSPACE, ON_PATH]), ON_PATH);
  assert.equal(found([IN_WORKSPACE]), IN_WORKSPACE);
  assert.equal(found([]), undefined);
});

test("a workspace that is not trusted offers no program", () => {
  assert.equal(found([IN_WORKSPACE], { trusted: false }), undefined);
});

test("what is set holds, found or not", () => {
  assert.equal(found([ON_PATH], { configured: "/nowhere" }), undefined);
  assert.equal(found(["/home/me/bin/x"], { configured: "~/bin/x" }), "/home/me/bin/x");
  const configured = "${workspaceFolder}/x";
  assert.equal(found(["/b/x"], { configured, folders: ["/a", "/b"] }), "/b/x");
});

test("windows has other names for all of it", () => {
  const program = "C:\\ws\\.venv\\Scripts\\sspec-assist.exe";
  const folders = ["C:\\ws"];
  assert.equal(found([program], { windows: true, folders, searchPath: "C:\\bin;" }), program);
});
