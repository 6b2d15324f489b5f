"""Each family's way to show a hole, spelled out, and how the vocabulary alone chooses it."""

from __future__ import annotations

import pytest

from engine.fill_layouts import FILL_LAYOUTS, FillLayout, choose_layout, fill_pieces, needed_markers
from engine.protocol import FillPrompt, Snippet

HOLE = FillPrompt(prefix="P", suffix="S", path="a.py", language="python")
WITH_FILES = FillPrompt(
    prefix="P",
    suffix="S",
    path="a.py",
    language="python",
    snippets=(Snippet(path="b.py", text="B"), Snippet(path="c.py", text="C\n")),
)

QWEN = "<|fim_prefix|> <|fim_suffix|> <|fim_middle|> <|repo_name|> <|file_sep|>"
STARCODER = "<fim_prefix> <fim_suffix> <fim_middle>"
CASES = {
    "qwen": (QWEN, "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>"),
    "granite4": (
        "<|fim_prefix|> <|fim_suffix|> <|fim_middle|> <|filename|>",
        "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
    ),
    "codegemma": (
        "<|fim_prefix|> <|fim_suffix|> <|fim_middle|> <|file_separator|>",
        "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
    ),
    "starcoder": (STARCODER, "<fim_prefix>P<fim_suffix>S<fim_middle>"),
    "santacoder": (
        "<fim-prefix> <fim-suffix> <fim-middle>",
        "<fim-prefix>P<fim-suffix>S<fim-middle>",
    ),
    "deepseek": (
        "<｜fim▁begin｜> <｜fim▁hole｜> <｜fim▁end｜>",
        "<｜fim▁begin｜>P<｜fim▁hole｜>S<｜fim▁end｜>",
    ),
    "codellama": ("▁<PRE> ▁<SUF> ▁<MID>", "▁<PRE>P▁<SUF>S▁<MID>"),
    "codestral": ("[PREFIX] [SUFFIX]", "[SUFFIX]S[PREFIX]P"),
    "seed": (
        "<[fim-prefix]> <[fim-suffix]> <[fim-middle]>",
        "<[fim-suffix]>S<[fim-prefix]>P<[fim-middle]>",
    ),
    "glm": (
        "<|code_prefix|> <|code_suffix|> <|code_middle|>",
        "<|code_prefix|>P<|code_suffix|>S<|code_middle|>",
    ),
}


def layout_for(vocabulary: str) -> FillLayout:
    layout = choose_layout(set(vocabulary.split()).__contains__)
    assert layout is not None
    return layout


def spelled(vocabulary: str, prompt: FillPrompt) -> str:
    return "".join(piece.text for piece in fill_pieces(layout_for(vocabulary), prompt))


@pytest.mark.parametrize("family", CASES)
def test_one_file(family: str) -> None:
    vocabulary, expected = CASES[family]
    assert spelled(vocabulary, HOLE) == expected


@pytest.mark.parametrize("missing", CASES["qwen"][0].split()[:3])
def test_a_layout_needs_all_its_markers(missing: str) -> None:
    assert choose_layout((set(QWEN.split()) - {missing}).__contains__) is None


FILES = {
    QWEN: "<|repo_name|>project\n<|file_sep|>b.py\nB\n<|file_sep|>c.py\nC\n<|file_sep|>a.py\n"
    "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
    STARCODER + " <repo_name> <file_sep>": "<repo_name>project<file_sep>b.py\nB<file_sep>c.py\nC\n"
    "<file_sep><fim_prefix>a.py\nP<fim_suffix>S<fim_middle>",
    CASES["codegemma"][0]: "b.py\nB\n<|file_separator|>c.py\nC\n<|file_separator|>a.py\n"
    "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
    CASES["codestral"][0]: "[SUFFIX]S[PREFIX]+++++ b.py\nB\n\n+++++ c.py\nC\n\n+++++ a.py\nP",
    CASES["deepseek"][0]: "<｜fim▁begin｜>#b.py\nB\n\n#c.py\nC\n\n#a.py\nP"
    "<｜fim▁hole｜>S<｜fim▁end｜>",
    STARCODER: "<fim_prefix># b.py\nB\n\n# c.py\nC\n\n# a.py\nP<fim_suffix>S<fim_middle>",
}


@pytest.mark.parametrize("vocabulary", FILES)
def test_other_files(vocabulary: str) -> None:
    assert spelled(vocabulary, WITH_FILES) == FILES[vocabulary]


@pytest.mark.parametrize(("language", "lead"), [("rust", "// "), ("lua", "-- "), (None, "# ")])
def test_a_header_is_a_comment_of_the_language(language: str | None, lead: str) -> None:
    prompt = FillPrompt(
        prefix="", suffix="", language=language, snippets=(Snippet(path="{x}", text="y"),)
    )
    assert lead + "{x}\ny\n\n" + lead + "untitled\n" in spelled(STARCODER, prompt)


@pytest.mark.parametrize("family", CASES)
def test_markers_and_texts_are_told_apart(family: str) -> None:
    layout = layout_for(CASES[family][0])
    hole = FillPrompt(prefix=layout.prefix, suffix=layout.suffix, snippets=WITH_FILES.snippets)
    pieces = fill_pieces(layout, hole)
    markers = [piece.text for piece in pieces if piece.marker]
    assert set(markers) <= set(needed_markers(layout))
    assert [markers.count(m) for m in layout.markers] == [1] * len(layout.markers)
    texts = [piece for piece in pieces if not piece.marker]
    assert [t.text for t in texts if t.text.endswith(layout.prefix)]
    assert [t.text for t in texts if t.text == layout.suffix]
    assert [t.joined for t in texts if t.text.endswith(layout.prefix)] == [False]


def test_no_two_layouts_need_the_same_markers() -> None:
    assert len({layout.markers for layout in FILL_LAYOUTS}) == len(FILL_LAYOUTS)
