"""Calibration: agreement against its definition, the formula against brute force, and a whole run
over a random model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.acceptance import Prior
from engine.calibration.agreement import (
    LEAST_REACHED,
    TEMPERATURES,
    by_position,
    exit_agreement,
    overlap,
    played_back,
)
from engine.calibration.figures import Path as DraftedPath
from engine.calibration.figures import Report, Timed, chosen_exits, verdicts, worth_timing
from engine.calibration.requests import read_prompts, read_requests
from engine.config import DraftSettings
from engine.costs import BucketCosts
from engine.draft.copy import CopyDrafter
from engine.draft_length import MIN_GAIN
from engine.profile import Profile, read_profile, save_profile
from engine.protocol import RequestError
from engine.session import Session
from engine.train.samples import Marks, reread

from .tiny_session import ask, flat_costs, tiny_loaded

MODERATE = settings(max_examples=40, deadline=None, derandomize=True)


def costs(c: float, rest: float = 1.05) -> BucketCosts:
    return BucketCosts(
        unit_ms=20.0,
        passes=[1.0, *[rest] * 32],
        drafts={"layer_skip": [c * k for k in range(1, 33)]},
        rests={},
    )


def path(
    name: str,
    alpha: float,
    c: float,
    *,
    there: bool = True,
    exit_layer: int | None = 3,
    layers: int = 3,
    hot: float | None = None,
) -> DraftedPath:
    return DraftedPath(
        name=name,
        route="layer_skip",
        layers=layers,
        exit_layer=exit_layer,
        is_there=there,
        agreement={t: (alpha if t < 1 or hot is None else hot,) * 4 for t in TEMPERATURES},
        costs={0: costs(c), 5: costs(c)},
    )


def report(*paths: DraftedPath, timed: tuple[Timed, ...] = ()) -> Report:
    return Report(
        requests=10,
        asked=12,
        tokens=900,
        judged=300,
        layers=10,
        head_share=0.1,
        paths=paths,
        timed=timed,
        copying={},
    )


@MODERATE
@given(rights=st.lists(st.lists(st.booleans(), max_size=40), min_size=1, max_size=4))
def test_shares_by_position_are_those_of_drafts_from_every_token(rights: list[list[bool]]) -> None:
    found = by_position([torch.tensor(run, dtype=torch.float32) for run in rights], steps=3)
    for step in range(3):
        reached = kept = 0
        for run in rights:
            for start in range(len(run) - step):
                if all(run[start : start + step]):
                    reached += 1
                    kept += run[start + step]
        if step == 0 or reached >= LEAST_REACHED:
            assert found[step] == pytest.approx(kept / reached if reached else 0.0)
        else:
            assert len(found) <= step, "what hardly any draft got to is not known"


def test_an_overlap_is_the_chance_that_rejection_sampling_keeps_a_token() -> None:
    full, draft = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(1))
    for temperature in (0.7, 1.0):
        p, q = (full / temperature).softmax(-1), (draft / temperature).softmax(-1)
        wanted = (q * (p / q).clamp(max=1)).sum(-1)
        assert overlap(full, draft, temperature) == pytest.approx(wanted, abs=1e-5)
    greedy = overlap(full, draft, 0.0)
    assert greedy.tolist() == (full.argmax(-1) == draft.argmax(-1)).float().tolist()


def test_a_draft_over_fewer_ids_keeps_no_more() -> None:
    full = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    for temperature in (0.0, 1.0):
        all_ids, some = overlap(full, full, temperature), overlap(full, full[:, :4], temperature)
        assert all_ids == pytest.approx(torch.ones(5), abs=1e-5)
        assert bool((some <= all_ids + 1e-6).all())


def test_the_last_exit_agrees_with_itself() -> None:
    """Also the guard that a state passes the final norm before the head: without it α is tiny."""
    model = tiny_loaded().model
    layers = model.architecture.layers
    marks = Marks(firsts=(1, 2, 3), jumps=(3,), layers=layers)
    ids = [3 + i % 40 for i in range(60)]
    sample = reread(model, model.new_cache(1), ids, 20, marks)
    found = exit_agreement(model, [sample], [1, layers])
    assert found[layers][0.0] == (1.0, 1.0, 1.0, 1.0)
    assert found[layers][1.0] == pytest.approx((1.0,) * 4, abs=1e-4)
    assert found[1][0.0][0] < 1


@MODERATE
@given(alpha=st.floats(0.05, 0.95), c=st.floats(0.05, 0.9))
def test_a_path_promises_what_the_formula_says(alpha: float, c: float) -> None:
    arm = path("one", alpha, c).arm(0)
    gains = {k: (1 - alpha ** (k + 1)) / (1 - alpha) / (k * c + 1.05) for k in range(1, 9)}
    assert arm.gain == pytest.approx(max(gains.values()))
    assert gains[arm.k] == pytest.approx(arm.gain)


def test_where_something_pays_it_is_named() -> None:
    said = verdicts(report(path("good", 0.8, 0.2), path("bad", 0.1, 0.2)))
    assert len(said) == 2
    assert all("good" in line and "predicted" in line for line in said)


@pytest.mark.parametrize(
    ("one", "named"),
    [
        (path("low", 0.3, 0.4), "train-head"),
        (path("dear", 0.75, 0.95), "doctor"),
        (path("deep", 0.75, 0.8, layers=8), "a cheaper path"),
        (path("hot", 0.7, 0.8, layers=8, hot=0.5), "temperature"),
    ],
)
def test_where_nothing_pays_the_reason_and_a_remedy_are_told(one: DraftedPath, named: str) -> None:
    said = verdicts(report(one))
    assert one.arm(0).gain < MIN_GAIN
    assert all("plain" in line for line in said[:2])
    assert any(named in line for line in said[2:])


def test_what_training_promises_is_told_where_something_pays_too() -> None:
    good, jump = path("good", 0.8, 0.3), path("jump", 0.85, 0.1, there=False, exit_layer=None)
    said = verdicts(report(good, jump))
    assert "good" in said[0]
    assert any("jump" in line and "train-head" in line for line in said)
    assert not any("train-head" in line for line in verdicts(report(good, path("bad", 0.1, 0.2))))


def test_what_was_measured_stands_beside_the_prediction() -> None:
    good = path("good", 0.8, 0.2)
    arm = good.arm(0)
    as_told = Timed(
        name="good",
        k=arm.k,
        rounds=50,
        tokens_per_round=arm.tokens,
        times_plain=arm.gain,
        c=good.c(0),
    )
    said = verdicts(report(good, timed=(as_told,)))
    assert said[0].endswith(f"{arm.gain:.2f} × plain predicted, {arm.gain:.2f} measured")
    assert "measured" not in said[1], "real rounds are of short contexts"
    assert len(said) == 2


@pytest.mark.parametrize(
    ("tokens", "ratio", "c", "named"),
    [
        (0.5, 1.0, 1.0, "harder than those judged on"),
        (1.0, 2.0, 2.0, "c was 0.40 for 0.20"),
        (1.0, 2.0, 1.0, "the verifying pass"),
    ],
)
def test_a_path_slower_than_predicted_says_which_part_was(
    tokens: float, ratio: float, c: float, named: str
) -> None:
    good = path("good", 0.8, 0.2)
    arm = good.arm(0)
    timed = Timed(
        name="good",
        k=arm.k,
        rounds=50,
        tokens_per_round=tokens * arm.tokens,
        times_plain=tokens * arm.gain / ratio,
        c=c * good.c(0),
    )
    (told,) = verdicts(report(good, timed=(timed,)))[2:]
    assert named in told


def test_a_jump_that_is_not_there_is_a_remedy_and_no_choice() -> None:
    low, jump = path("low", 0.3, 0.4), path("jump", 0.8, 0.2, there=False, exit_layer=None)
    said = verdicts(report(low, jump))
    assert "plain" in said[0]
    assert any("jump" in line and "train-head" in line for line in said)


def test_the_exit_that_promises_most_is_kept_for_each_context() -> None:
    shallow, deep = path("first 3", 0.5, 0.2), path("first 8", 0.9, 0.5, exit_layer=8)
    deep.costs[5].drafts["layer_skip"][:] = [3.0 * k for k in range(1, 33)]  # type: ignore[index]
    assert chosen_exits(report(shallow, deep)) == {0: 8, 5: 3}


def test_the_most_promising_paths_and_an_exit_are_timed() -> None:
    jumps = [path(f"jump {i}", 0.8, 0.1 * i, exit_layer=None) for i in range(1, 6)]
    exits = [path("first 3", 0.1, 0.3), path("first 5", 0.2, 0.3, exit_layer=5)]
    timed = [one.name for one in worth_timing(report(*exits, *jumps), 3)]
    assert timed == ["jump 1", "jump 2", "first 5"]


def test_a_profile_decides_the_exit_and_the_assumptions(tmp_path: Path) -> None:
    from dataclasses import replace

    loaded = replace(tiny_loaded(), folder=tmp_path)
    profile = Profile(
        weights_digest=loaded.weights_digest,
        requests=1,
        tokens=1,
        exit_layers={0: 2, 5: 1},
        agreement={"layer_skip": (0.9, 0.8, 0.7), "copy/2": (0.1, 0.2, 0.3)},
    )
    save_profile(profile, tmp_path)
    session = Session(loaded, DraftSettings(), flat_costs(), name="tiny", rows=1)
    answer = session.start(ask())
    assert answer.drafting.drafters["layer_skip"].reusable_layers == 2
    list(answer.step())
    while not answer.done:
        list(answer.step())
    assert session._records["layer_skip", 2].prior.rates == (0.9, 0.8, 0.7)
    usual = Prior(rates=(0.5, 0.5, 0.5), worth=3.0)
    assert profile.prior("copy", 2, usual) == Prior(rates=(0.1, 0.2, 0.3), worth=3.0)
    assert profile.prior("copy", 3, usual) == usual
    pinned = Session(loaded, DraftSettings(exit_layer=3), flat_costs(), name="tiny", rows=1)
    assert pinned.start(ask()).drafting.drafters["layer_skip"].reusable_layers == 3


def test_a_profile_of_another_model_changes_nothing(tmp_path: Path) -> None:
    from dataclasses import replace

    loaded = replace(tiny_loaded(), folder=tmp_path)
    usual = Session(loaded, DraftSettings(), flat_costs(), name="tiny", rows=1)
    layers = usual.start(ask()).drafting.drafters["layer_skip"].reusable_layers
    other = Profile(weights_digest="other", requests=1, tokens=1, exit_layers={0: layers + 1})
    save_profile(other, tmp_path)
    session = Session(loaded, DraftSettings(), flat_costs(), name="tiny", rows=1)
    assert session.start(ask()).drafting.drafters["layer_skip"].reusable_layers == layers


@pytest.mark.parametrize("content", [b"", b"{", b'{"format": 9}'])
def test_a_damaged_profile_is_left_out(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_bytes(content)
    assert read_profile(tmp_path, "d", 4) is None


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("exit_layers", {"0": 3}, {"0": 4}),
        ("exit_layers", {"0": 1}, {"0": 0}),
        ("head_vocab", 1, 0),
        ("stop_below", 0.0, 1.5),
        ("agreement", {"copy": [0, 0.5, 1]}, {"copy": [0, 0.5, 1.1]}),
    ],
)
def test_a_profile_that_nobody_can_have_measured_is_left_out(
    name: str, good: object, bad: object, tmp_path: Path
) -> None:
    said = {"format": 1, "weights_digest": "d", "requests": 1, "tokens": 1}
    for value, taken in ((good, True), (bad, False)):
        (tmp_path / "profile.json").write_text(json.dumps(said | {name: value}))
        assert (read_profile(tmp_path, "d", 4) is not None) == taken


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "requests.txt"
    file.write_bytes(b"caf\xe9")
    with pytest.raises(RequestError, match=r"not UTF-8 text \(byte 3\)"):
        read_prompts(file)
    with pytest.raises(RequestError, match="can't be read"):
        read_prompts(tmp_path)


def test_requests_may_be_lines_prompts_messages_and_holes(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text(
        "How do I sort a list?\n"
        "\n"
        '{"prompt": "Write a loop."}\n'
        '{"messages": [{"role": "system", "content": "Be short."},'
        ' {"role": "user", "content": "Why?"}]}\n'
        '{"prefix": "def f(", "suffix": "):"}\n'
    )
    loaded = tiny_loaded()
    found = read_requests(file, loaded.text, 512)
    assert len(found) == 4
    assert found[-1].stop_ids == loaded.text.fill_stop_ids


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "can't be read"),
        ("", "no request"),
        ('{"prompt": 3}', "line 1"),
        ('{"messages": []}', "asks nothing"),
        ("fine\n\n{broken", "line 3"),
        ("too long " * 400, "at most 640 tokens"),
    ],
)
def test_a_file_of_no_requests_is_refused(content: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "requests.txt"
    if content is not None:
        file.write_text(content)
    with pytest.raises(RequestError, match=said):
        read_requests(file, tiny_loaded().text, 512)


def test_an_answer_that_is_played_back_needs_no_model() -> None:
    tokens = [1, 2, 1, 2]
    row, drafter = played_back(tokens), CopyDrafter(torch.device("cpu"))
    assert row.tokens is tokens
    assert drafter.evidence(row) is not None
    assert drafter.guess(row, 2) == [1, 2]
    tokens.append(3)
    assert drafter.evidence(row) is None, "it sees what is appended"
