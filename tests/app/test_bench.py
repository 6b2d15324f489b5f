"""How `bench` chooses its arms and cases, and how it tells what came of them."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from app.bench_cli import asked_routes, replayed
from app.bench_options import BenchOptions
from app.bench_run import DRAWN, Bench, run_bench
from app.bench_table import (
    HEADER,
    KIND_HEADER,
    coverage_line,
    floor_line,
    kind_line,
    left_out_line,
    result_line,
    time_line,
)
from app.cli import cli
from engine.bench import CaseTime, Plan, RouteArm
from engine.bench_results import ArmResult, KindResult, Run
from engine.cases import Case, LeftOut
from engine.floor import Floor
from engine.intervals import Interval
from engine.protocol import ChatPrompt, RequestError, RouteChoice, SamplingParams, Turn
from engine.trace import TraceFile
from tests.engine.tiny_session import tiny_session


def around(median: float, width: float = 0.1) -> Interval:
    return Interval(median=median, low=median - width, high=median + width, coverage=0.9375)


RESULT = ArmResult(
    case="fill",
    kind="fill",
    arm="auto",
    prompt_tokens=510,
    output_tokens=64,
    tokens_per_s=around(81.25),
    times_plain=around(1.256),
    tested=40,
    accepted=30,
    tokens_per_round=1.75,
    draft_cost=0.304,
    verify_cost=1.125,
    verify_rows=3.9,
    draft_share=0.2,
    verify_share=0.7,
    by_route={"copy": 9},
    same_text=True,
)
PEER = replace(
    RESULT,
    arm="llama.cpp:8080",
    tested=0,
    accepted=0,
    tokens_per_round=None,
    draft_cost=None,
    verify_cost=None,
    draft_share=None,
    same_text=None,
)


class Paced:
    """A peer that takes 4 ms a token."""

    name = "peer"

    def run(self, case: Case, sampling: SamplingParams) -> Run:
        return Run(prompt_tokens=3, output_tokens=5, decode_ms=20.0)


def test_an_arm_is_one_line_with_every_figure() -> None:
    line = result_line(RESULT)
    words = line.split()
    assert words[:7] == ["fill", "auto", "510", "64", "81.2", "1.26", "1.16–1.36"]
    assert "0.75 (30/40)" in line
    assert "1.12 @ 3.9" in line
    assert "20/70/10 %" in line
    assert line.endswith("as plain")
    assert result_line(replace(RESULT, same_text=False)).endswith("DIFFERS from plain")
    assert line.index("0.30") < HEADER.index(" c ") + 5


def test_a_peer_s_line_leaves_open_what_is_not_seen() -> None:
    line = result_line(PEER)
    assert line.count("–") >= 5
    assert "plain" not in line


def test_a_kind_is_one_line_with_its_worst_case() -> None:
    result = KindResult(
        kind=None,
        arm="auto",
        against="plain",
        cases=12,
        ratio=1.5,
        low=1.4,
        high=1.61,
        coverage=0.9375,
        worst_case="prose",
        worst=0.98,
    )
    assert kind_line(result).split() == [
        "all",
        "kinds",
        "auto",
        "12",
        "1.50",
        "1.40–1.61",
        "prose",
        "0.98",
    ]
    assert KIND_HEADER.index("interval") == kind_line(result).index("1.40–1.61")


def test_what_intervals_mean_is_said_with_their_true_coverage() -> None:
    assert "93.8 % (the range of 5 runs)" in coverage_line(around(1.0), 5)
    assert "no intervals" in coverage_line(replace(around(1.0), coverage=0.0), 1)


def test_how_long_it_takes_is_told_after_each_case() -> None:
    told = CaseTime(case="fill", seconds=30.0, done=2, of=12)
    assert time_line(told) == "fill: 2 of 12, 30 s; about 5 min more if the others are like it"
    assert time_line(replace(told, done=12)) == "fill: 12 of 12, 30 s"


def test_what_was_left_out_is_named() -> None:
    assert left_out_line(LeftOut(case="fill", reason="no room")).endswith("left out: no room")
    one_arm = left_out_line(LeftOut(case="fill", reason="no head", arm="exit_head"))
    assert one_arm.endswith("left out: exit_head: no head")


def test_plain_is_always_an_arm() -> None:
    assert asked_routes(BenchOptions()) == ["plain", "auto"]
    assert asked_routes(BenchOptions(arm=["copy", "plain"])) == ["plain", "copy"]
    everything = asked_routes(BenchOptions(arms="all"))
    assert everything[0] == "plain"
    assert everything[-1] == "auto"
    assert {"copy", "exit_head", "layer_skip"} <= {*everything}
    with pytest.raises(RequestError, match="no route quick"):
        asked_routes(BenchOptions(arm=["quick"]))
    with pytest.raises(RequestError, match="--arms"):
        asked_routes(BenchOptions(arms="some"))


def a_bench(temperature: float = 0.0) -> Bench:
    session = tiny_session()
    routes: tuple[RouteChoice, ...] = ("plain", "auto", "exit_head")
    prompt = ChatPrompt(turns=(Turn(role="user", content="one two one two one"),))
    case = Case(name="one", kind="edit", prompt=prompt)
    sampling = SamplingParams(temperature=temperature)
    return Bench(
        session=session,
        arms=[*(RouteArm(session, route) for route in routes), Paced()],
        peers=("peer",),
        cases=[case],
        plan=Plan(repeats=2, sampling=sampling, max_tokens=5),
        unchosen=41,
    )


def test_a_run_ends_with_what_it_adds_up_to_and_what_was_not_run() -> None:
    out, err = io.StringIO(), io.StringIO()
    run_bench(a_bench(), out, err, as_json=False)
    text = out.getvalue()
    assert "GB/s" not in text
    assert "tiny, nf4, on cpu" in text
    assert "left out: exit_head:" in text
    assert "plain ÷ peer" in text
    assert "auto ÷ peer" in text
    assert "41 more cases" in text
    assert DRAWN not in text
    assert err.getvalue().startswith("one: 1 of 1")


def test_drawn_texts_are_not_compared_and_it_says_so() -> None:
    out = io.StringIO()
    run_bench(a_bench(temperature=0.7), out, io.StringIO(), as_json=False)
    assert DRAWN in out.getvalue()
    assert "as plain" not in out.getvalue()


def test_how_near_the_memory_s_floor_plain_decoding_comes_is_told() -> None:
    floor = Floor(
        read_gb_s=40.0,
        copy_gb_s=60.0,
        context_tokens=200,
        bytes_per_token=400_000_000,
        floor_ms=10.0,
        plain_ms=12.5,
        reached=0.8,
    )
    assert floor_line(floor).endswith("12.5 ms: 80 % of the possible speed")


def test_what_a_drafting_arm_traced_can_be_summed_up(tmp_path: Path) -> None:
    file, bench = tmp_path / "trace.jsonl", a_bench()
    trace = TraceFile(file)
    arm = RouteArm(bench.session, "auto", trace)
    run = arm.run(bench.cases[0], SamplingParams(max_tokens=12))
    RouteArm(bench.session, "plain").run(bench.cases[0], SamplingParams(max_tokens=12))
    trace.close()
    told = json.loads(replayed(file, as_json=True))
    assert (told["answers"], told["tokens"]) == (1, run.output_tokens)
    assert "1 answers: 12 tokens" in replayed(file, as_json=False)


def test_json_is_one_document_with_all_of_it() -> None:
    out = io.StringIO()
    run_bench(a_bench(), out, io.StringIO(), as_json=True)
    told = json.loads(out.getvalue())
    assert [result["arm"] for result in told["results"]] == ["plain", "auto", "peer"]
    assert told["left_out"][0]["arm"] == "exit_head"
    assert told["results"][0]["times_plain"]["median"] == 1.0
    assert told["against_peers"][0]["against"] == "peer"
    assert [result["arm"] for result in told["kinds"]] == ["auto"]
    assert told["cases_not_chosen"] == 41
    assert told["complete"]


class Interrupting(Paced):
    """A peer that somebody stops with Ctrl-C on the second case."""

    def run(self, case: Case, sampling: SamplingParams) -> Run:
        if case.name == "two":
            raise KeyboardInterrupt
        return super().run(case, sampling)


def test_json_of_a_run_that_was_stopped_holds_what_was_measured() -> None:
    whole = a_bench()
    cases = [*whole.cases, replace(whole.cases[0], name="two")]
    stopped = dataclasses.replace(whole, arms=[*whole.arms[:-1], Interrupting()], cases=cases)
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        run_bench(stopped, out, io.StringIO(), as_json=True)
    told = json.loads(out.getvalue())
    assert {result["case"] for result in told["results"]} == {"one"}
    assert not told["complete"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--replay", "FILE", "--vs", "hf", "--full"], "--full, --vs would do nothing with --repl"),
        (["--shape", "qwen2.5-7b", "--case", "json"], "--case would do nothing with --shape"),
        (["--humaneval", "2", "--repeats", "7"], "--repeats would do nothing with --humaneval"),
        (["--keystrokes", "--floor"], "--floor would do nothing with --keystrokes"),
        (["--speed", "2"], "--speed belongs to --keystrokes"),
        (["--vs-url", "http://localhost:8080", "--vs-url", "127.0.0.1:8080"], "8080 twice"),
    ],
)
def test_options_that_do_nothing_are_refused(options: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["bench", *options])
    assert result.exit_code == 2
    assert said in result.stderr
