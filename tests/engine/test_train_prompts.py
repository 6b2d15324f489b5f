"""What the model is asked: mixed, many, none of the bench's, and nothing secret of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.cases import built_in_cases
from engine.protocol import ChatPrompt, FillPrompt
from engine.train.project_text import (
    AFTER_CHARS,
    BEFORE_CHARS,
    fills_and_edits,
    interleaved,
    looks_like_project,
)
from engine.train.prompts import built_in_prompts
from engine.train.questions import FILL_TOKENS, is_held_out, questions_for

from .tiny_session import codec

CODE = (
    "import os\n\n\ndef load(path):\n    with open(path) as file:\n        return file.read()\n" * 9
)


def texts(prompts: list[ChatPrompt]) -> list[str]:
    return [prompt.turns[0].content for prompt in prompts]


def words(text: str) -> set[str]:
    return {word.strip(".,`:;()").lower() for word in text.split()}


def project(folder: Path) -> Path:
    (folder / "src").mkdir()
    (folder / "src" / "load.py").write_text(CODE, encoding="utf-8")
    (folder / "src" / "other.go").write_text(CODE.replace("load", "fetch"), encoding="utf-8")
    (folder / ".env").write_text("TOKEN=hunter2\n" * 50, encoding="utf-8")
    (folder / "credentials.json").write_text("hunter2\n" * 50, encoding="utf-8")
    (folder / ".gitignore").write_text("made/\n", encoding="utf-8")
    (folder / "made").mkdir()
    (folder / "made" / "bundle.js").write_text("hunter2\n" * 50, encoding="utf-8")
    return folder


def everything(prompts: Iterator[FillPrompt | ChatPrompt]) -> str:
    parts = []
    for prompt in prompts:
        if isinstance(prompt, FillPrompt):
            parts += [prompt.prefix, prompt.suffix, prompt.path or ""]
        else:
            parts += [turn.content for turn in prompt.turns]
    return "\n".join(parts)


def test_there_are_hundreds_and_no_two_alike() -> None:
    found = texts(built_in_prompts())
    assert len(found) == len(set(found))
    assert 300 <= len(found) <= 700
    assert found == texts(built_in_prompts())
    assert found != texts(built_in_prompts(seed=1))


def test_any_beginning_holds_every_kind() -> None:
    begun = "\n".join(texts(built_in_prompts())[:80])
    for sign in ("JSON", "```python", "Rust", "xplain", "class", "tests", "Python"):
        assert sign in begun


def test_no_question_is_one_of_the_benchs() -> None:
    asked = [
        words(case.prompt.turns[-1].content[:400])
        for case in built_in_cases()
        if isinstance(case.prompt, ChatPrompt)
    ]
    for text in texts(built_in_prompts()):
        mine = words(text)
        for theirs in asked:
            assert len(mine & theirs) < 0.75 * len(mine | theirs), text


def test_fills_are_cut_where_a_cursor_may_stand(tmp_path: Path) -> None:
    fills = [p for p in fills_and_edits(project(tmp_path), 60) if isinstance(p, FillPrompt)]
    assert len(fills) >= 40
    for fill in fills:
        source = CODE if (fill.path or "").endswith("load.py") else CODE.replace("load", "fetch")
        assert fill.prefix in source
        assert fill.suffix in source
        assert source.find(fill.prefix + fill.suffix) == -1 or not fill.suffix
        assert len(fill.prefix) <= BEFORE_CHARS
        assert len(fill.suffix) <= AFTER_CHARS


def test_nothing_secret_or_ignored_is_read(tmp_path: Path) -> None:
    found = everything(fills_and_edits(project(tmp_path), 80))
    assert "def load" in found
    assert "hunter2" not in found
    assert "bundle" not in found


def test_without_a_project_the_standard_library_serves() -> None:
    found = list(fills_and_edits(None, 20))
    assert 10 < len(found) <= 20
    assert found == list(fills_and_edits(None, 20))


def test_a_folder_without_code_is_no_project(tmp_path: Path) -> None:
    assert not looks_like_project(tmp_path)
    assert list(fills_and_edits(tmp_path, 5)) == []
    assert looks_like_project(project(tmp_path))


def test_two_lists_are_spread_through_each_other() -> None:
    chats = built_in_prompts()[:9]
    fills = [p for p in fills_and_edits(None, 9) if isinstance(p, FillPrompt)][:3]
    mixed = interleaved(chats, fills)
    assert len(mixed) == 12
    assert [isinstance(p, FillPrompt) for p in mixed].index(True) < 3
    assert isinstance(mixed[-1], ChatPrompt) or isinstance(mixed[-2], ChatPrompt)


def test_questions_fit_the_context_and_alternate(tmp_path: Path) -> None:
    found = questions_for(codec(), project(tmp_path), 640)
    assert len(found) > 100
    assert all(len(q.ids) + q.max_tokens < 640 for q in found)
    assert {q.temperature for q in found} == {0.0, 0.7}
    assert any(q.max_tokens == FILL_TOKENS for q in found)
    again = questions_for(codec(), tmp_path, 640)
    assert [q.key for q in found] == [q.key for q in again]
    held = sum(is_held_out(q.key) for q in found)
    assert 0.02 * len(found) < held < 0.2 * len(found)
