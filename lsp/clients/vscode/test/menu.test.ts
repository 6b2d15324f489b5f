import assert from "node:assert/strict";
import { test } from "node:test";
import { menu } from "../src/menu";

const PYTHON = { id: "python", allowed: true };

test("what is on can be turned off, and the other way", () => {
  const on = menu({ kind: "starting" }, true, PYTHON).map(({ label }) => label);
  assert.ok(on.includes("$(circle-slash) Turn completions off"));
  assert.ok(on.includes("$(circle-slash) Turn completions off for python"));
  const partly = menu({ kind: "starting" }, true, { ...PYTHON, allowed: false });
  assert.ok(partly.some(({ label }) => label === "$(check) Turn completions on for python"));
});

test("while all are off, a single language is no question", () => {
  const actions = menu({ kind: "starting" }, false, PYTHON).map(({ action }) => action);
  assert.deepEqual(actions, ["toggle", "restart", "showLog", "settings"]);
});

test("a program that was not found is the first thing offered to mend", () => {
  assert.equal(menu({ kind: "missing", looked: [] }, true, PYTHON)[0]?.action, "setPath");
});
