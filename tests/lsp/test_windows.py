"""How a text is cut: whole definitions, sensible sizes, nothing lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lsp.windows import LONGEST_LINE, MOST_LINES, lines_of, windows


def function(name: str, lines: int, indent: str = "") -> str:
    body = [f"{indent}    x{n} = {name}({n})" for n in range(lines - 1)]
    return "\n".join([f"{indent}def {name}():", *body]) + "\n"


def test_definitions_stay_whole_where_they_fit() -> None:
    text = "".join(function(name, 12) for name in ("one", "two", "three", "four", "five"))
    cut = windows(text)
    assert [window.body.count("def ") for window in cut] == [2, 2, 1]
    assert all(window.body.startswith("def ") for window in cut)


def test_small_ones_go_together_and_large_ones_stand_alone() -> None:
    text = "import os\nimport sys\n\n" + function("large", 39) + function("small", 3)
    assert [window.body.splitlines()[0] for window in windows(text)] == [
        "import os",
        "def large():",
        "def small():",
    ]


def test_a_part_of_a_long_class_begins_with_the_line_that_opened_it() -> None:
    methods = "\n".join(function(f"method{n}", 15, "    ") for n in range(6))
    cut = windows(f"@decorated\nclass Long:\n    name: str\n\n{methods}")
    assert cut[0].body.startswith("@decorated\nclass Long:\n    name: str")
    assert cut[0].header == ""
    assert len(cut) > 2
    for window in cut[1:]:
        assert window.text.startswith("class Long:\n    def method")


def test_brackets_and_later_branches_end_what_they_belong_to() -> None:
    block = "function a() {\n" + "  step();\n" * 17 + "}\n"
    cut = windows(block * 4)
    assert [window.body.splitlines()[-1] for window in cut] == ["}"] * 2
    text = "if a:\n" + "    b()\n" * 21 + "else:\n" + "    c()\n" * 4
    assert len(windows(text)) == 1


def test_comments_and_decorators_go_with_what_is_below() -> None:
    text = function("one", 22) + "# about two\n@cached\n" + function("two", 22)
    assert [window.body.splitlines()[0] for window in windows(text)] == [
        "def one():",
        "# about two",
    ]


def test_a_long_flat_text_is_cut_by_lines() -> None:
    cut = windows("\n".join(f"line {n}" for n in range(100)))
    assert [window.first for window in cut] == [0, 20, 40, 60, 80]


def test_every_line_end_is_one() -> None:
    for end in ("\n", "\r\n", "\r"):
        assert windows(end.join(["a = 1", "b = 2"]))[0].body == "a = 1\nb = 2"
    assert lines_of("a\x0cb\u2028c") == ["a\x0cb\u2028c"]


def test_what_nobody_wrote_has_no_windows() -> None:
    assert windows("var a=1;" * LONGEST_LINE) == ()
    assert windows("") == ()
    assert windows("\n \n\t\n") == ()


LINES = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["x", "def f():", "}", "", "# c", "else:", "@d"])),
    max_size=200,
)


@given(LINES)
def test_nothing_is_lost_and_nothing_comes_twice(made: list[tuple[int, str]]) -> None:
    lines = ["    " * depth + text for depth, text in made]
    cut = windows("\n".join(lines))
    shown = [line for window in cut for line in window.body.split("\n") if line.strip()]
    assert shown == [line for line in lines if line.strip()]
    assert all(len(window.body.split("\n")) <= 2 * MOST_LINES for window in cut)
    assert [window.first for window in cut] == sorted({window.first for window in cut})
