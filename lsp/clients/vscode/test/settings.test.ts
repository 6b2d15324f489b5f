import assert from "node:assert/strict";
import { test } from "node:test";
import { MOST, Restarts, WITHIN_MS } from "../src/restarts";
import { allows, forServer, startArguments } from "../src/settings";

test("a language's own word comes before that for all", () => {
  assert.ok(allows({}, "python"));
  assert.ok(!allows({ "*": false }, "python"));
  assert.ok(allows({ "*": false, python: true }, "python"));
  assert.ok(!allows({ python: false }, "python"));
});

test("the server is told its own settings only", () => {
  const section = { enabled: true, maxTokens: 5, path: "/x", model: "m", arguments: ["a"] };
  assert.deepEqual(forServer(section), { enabled: true, maxTokens: 5 });
  assert.deepEqual(forServer(null), {});
});

test("a model is an argument", () => {
  assert.deepEqual(startArguments(" ", []), ["lsp"]);
  assert.deepEqual(startArguments("m", ["-v"]), ["lsp", "--model", "m", "-v"]);
});

test("a server that keeps ending is not started again", () => {
  const restarts = new Restarts();
  const answers = Array.from({ length: MOST + 1 }, (_, second) => restarts.mayStart(second * 1000));
  assert.deepEqual(answers, [...Array<boolean>(MOST).fill(true), false]);
  assert.ok(restarts.mayStart(WITHIN_MS * 3));
});
