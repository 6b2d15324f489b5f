import assert from "node:assert/strict";
import { test } from "node:test";
import { type Situation, type State, type Status, shown } from "../src/status";

const STATUS: Status = {
  state: "ready",
  text: "m is ready on cpu.",
  model: "m",
  alpha: null,
  timesPlain: null,
  paused: false,
  plainTokensPerS: null,
  notice: "",
};

function told(changes: Partial<Status>): Situation {
  return { kind: "told", status: { ...STATUS, ...changes } };
}

test("a ready model shows its figures once there are any", () => {
  assert.equal(shown(told({}), undefined).text, "$(check) sspec");
  const known = shown(told({ alpha: 0.5, timesPlain: 1.204, plainTokensPerS: 30 }), undefined);
  assert.equal(known.text, "$(check) sspec α 0.50 1.20 ×");
  assert.match(known.tooltip, /α 0\.50 \(accepted ÷ tested draft tokens\)/);
  assert.match(known.tooltip, /1\.20 × plain \(plain: 30\.0 tok\/s\)/);
});

test("loading shows how far it is", () => {
  const text = "m is loading: quantizing: 42 %.";
  assert.equal(shown(told({ state: "loading", text }), undefined).text, "$(sync~spin) sspec 42 %");
  const early = shown(told({ state: "loading", text: "m is loading: starting." }), undefined);
  assert.equal(early.text, "$(sync~spin) sspec");
});

test("every state has a text of its own, and only what is wrong warns", () => {
  const states: State[] = ["loading", "ready", "paused", "asleep", "failed", "away", "off"];
  const all = states.map((state) => shown(told({ state }), undefined));
  assert.equal(new Set(all.map(({ text }) => text)).size, states.length);
  const warning = states.filter((_, index) => all[index]?.warning);
  assert.deepEqual(warning, ["failed", "away"]);
});

test("a language that is off is said, unless all are", () => {
  const language = { id: "markdown", allowed: false };
  assert.match(shown(told({}), language).tooltip, /off for markdown/);
  assert.match(shown(told({ state: "off", text: "All off." }), language).tooltip, /All off/);
});

test("a program that was not found says where it was looked for", () => {
  const { tooltip, warning } = shown({ kind: "missing", looked: ["/a", "/b"] }, undefined);
  assert.ok(warning);
  assert.match(tooltip, /sspecAssist\.path.*\/a, \/b/);
});
