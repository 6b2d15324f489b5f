"""One line per round: what was expected, what came, and what a file of them sums up to."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from engine.protocol import RequestError, RoundDone, SamplingParams
from engine.trace import TraceFile, TraceLine, read_trace, sum_of, summarise

from .tiny_session import answered, ask, tiny_session

REPEATING = SamplingParams(max_tokens=60, repetition_penalty=0.5)


def traced(path: Path, *texts: str) -> list[RoundDone]:
    session = tiny_session()
    with closing(TraceFile(path)) as session.trace:
        return [
            event
            for text in texts
            for event in answered(session, ask(text, id=text, sampling=REPEATING))
            if isinstance(event, RoundDone)
        ]


def line(**changed: object) -> TraceLine:
    values: dict[str, object] = {
        "answer": "one",
        "context_tokens": 100,
        "route": "copy",
        "k": 4,
        "expected_tokens": 3.0,
        "expected_ms": 25.0,
        "drafted": 4,
        "tested": 3,
        "accepted": 2,
        "tokens": 3,
        "ms": 30.0,
        "draft_ms": 0.0,
        "verify_ms": 29.0,
        "plain_ms": 20.0,
        "probe": False,
        "reason": "copy: α 0.60, k 4",
        "alternatives": (),
    }
    return TraceLine(**(values | changed))  # type: ignore[arg-type]


def test_every_round_of_every_answer_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rounds = traced(path, "a b a b a b", "c d c d c d")
    lines = read_trace(path)
    assert len(lines) == len(rounds)
    assert {one.answer for one in lines} == {"a b a b a b", "c d c d c d"}
    for told, done in zip(lines, rounds, strict=True):
        assert (told.route, told.k, told.reason) == (done.route, done.k, done.reason)
        assert (told.drafted, told.tested) == (done.drafted, done.tested)
        assert (told.accepted, told.tokens) == (done.accepted, done.accepted + 1)
        assert told.ms == pytest.approx(done.round_ms, abs=1e-3)
        assert told.context_tokens + told.tokens == done.context_tokens


def test_a_line_says_what_was_expected_and_what_else_was_weighed(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    traced(path, "a b a b a b a b")
    drafted = [one for one in read_trace(path) if one.drafted]
    assert drafted
    for one in drafted:
        assert 1 < one.expected_tokens <= one.k + 1
        assert one.expected_ms >= one.plain_ms
        assert [arm.route for arm in one.alternatives][-1] == "plain"
        assert one.route not in [arm.route for arm in one.alternatives]


def test_the_sum_is_what_the_lines_say() -> None:
    total = sum_of(
        [
            line(),
            line(tokens=5, accepted=4, tested=4, ms=50.0),
            line(route="plain", k=0, drafted=0, tested=0, accepted=0, tokens=1, ms=20.0,
                 reason="nothing to copy", answer="two"),
            line(route="layer_skip", k=1, drafted=1, tested=1, accepted=0, tokens=1, ms=25.0,
                 probe=True),
        ]
    )  # fmt: skip
    assert (total.answers, total.rounds, total.tokens, total.ms) == (2, 4, 10, 125.0)
    assert total.times_plain == pytest.approx(10 * 20 / 125)
    assert total.probing_share == pytest.approx(0.2)
    copies = total.routes[0]
    assert (copies.route, copies.rounds, copies.tokens, copies.ms) == ("copy", 2, 4.0, 40.0)
    assert (copies.tested, copies.accepted) == (7, 6)
    assert total.plain_reasons == (("nothing to copy", 1),)


def test_the_page_names_routes_and_reasons(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    traced(path, "a b a b a b")
    page = summarise(path)
    assert "× plain" in page
    assert "probing took 0.00 %" in page
    assert "copy" in page


def test_the_page_says_why_nothing_was_drafted(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    session = tiny_session()
    with closing(TraceFile(path)) as session.trace:
        answered(session, ask(route="plain", sampling=SamplingParams(max_tokens=7)))
    *_, heading, reason = summarise(path).splitlines()
    assert heading == "why nothing was drafted"
    assert reason.split() == ["7", "×", "pinned", "by", "the", "user"]


def test_a_file_that_cant_be_written_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="nowhere") as raised:
        TraceFile(tmp_path / "nowhere" / "trace.jsonl")
    assert raised.value.hint


def test_a_line_that_was_not_finished_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trace.jsonl"
    rounds = traced(path, "a b a b a b")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert len(read_trace(path)) == len(rounds) - 1
    assert "unfinished and left out" in caplog.text
    path.write_bytes(whole[:9])
    with pytest.raises(RequestError, match="line 1"):
        read_trace(path)
    first, rest = whole.split(b"\n", 1)
    path.write_bytes(first[:-9] + b"\n" + rest)
    with pytest.raises(RequestError, match="line 1"):
        read_trace(path)


def test_rounds_without_a_time_are_summed_up_too() -> None:
    assert sum_of([line(ms=0.0)]).tokens == 3


def test_a_full_disk_ends_the_trace_and_not_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    assert traced(Path("/dev/full"), "a b a b a b")
    assert caplog.text.count("ends here: No space left") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "can't be read"),
        (b"", "holds no round"),
        (b"{}\n", "line 1"),
        (b"hi\n", "line 1"),
        (b"\xff\x00\n", "line 1"),
        (b"[]", "line 1"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RequestError, match=said):
        summarise(path)
