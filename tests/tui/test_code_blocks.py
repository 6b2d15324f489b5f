"""Where blocks begin and end, that their code is exact, and which file they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.code_blocks import CodeBlock, code_blocks


def only(markdown: str) -> CodeBlock:
    (block,) = code_blocks(markdown)
    return block


def target_of(info: str = "", *, before: str = "", code: str = "x\n") -> str | None:
    return only(f"{before}\n```{info}\n{code}```\n").target


@pytest.mark.parametrize(
    ("markdown", "code"),
    [
        ("```py\nx = 1\n```\n", "x = 1\n"),
        ("~~~py\nx\n```\n~~~", "x\n```\n"),
        ("````md\n```py\n1\n```\n````\n", "```py\n1\n```\n"),
        ("```\na\n````\n", "a\n"),
        ("```\na\n``` b\n```\n", "a\n``` b\n"),
        ("- text\n\n  ```py\n  if x:\n      y\n\n  z\n  ```\n", "if x:\n    y\n\nz\n"),
        ("1. text\n   ```\n   a\n    b\n   ```", "a\n b\n"),
        ("> ```\n> a\n>  b\n> ```\n", "a\n b\n"),
        ("   ```\n   a\n  b\n   ```\n", "a\nb\n"),
        ("```\n```\n", ""),
        ("```\n\n\n```\n", "\n\n"),
        ("```\n\tx \t\n```", "\tx \t\n"),
        ("```\r\na\r\nb\0\r\n```\r\n", "a\r\nb\0\r\n"),
        ("```\na\x0cb\u2028c\x85\n```\n", "a\x0cb\u2028c\x85\n"),
    ],
)
def test_the_code_is_exact(markdown: str, code: str) -> None:
    block = only(markdown)
    assert block.code == code
    assert block.closed


@pytest.mark.parametrize(
    ("markdown", "code"),
    [
        ("```py\nx\ny", "x\ny"),
        ("```py\nx\n", "x\n"),
        ("```py\nx\n\n", "x\n\n"),
        ("```", ""),
        ("````\nx\n```\n", "x\n```\n"),
        ("```\nx\n~~~\n", "x\n~~~\n"),
    ],
)
def test_a_block_that_is_cut_off_says_so(markdown: str, code: str) -> None:
    block = only(markdown)
    assert block.code == code
    assert not block.closed


def test_blocks_are_numbered_and_placed() -> None:
    blocks = code_blocks("text\n```py\n1\n```\n\n    indented\n\n~~~~sh -e\n2\n~~~~\n`inline`\n")
    assert [(b.index, b.line, b.language, b.info) for b in blocks] == [
        (0, 2, "py", "py"),
        (1, 8, "sh", "sh -e"),
    ]


@given(
    st.text(st.sampled_from("ab \t`~>-#\r\0\x0c\u2028é😀\n"), max_size=60),
    st.sampled_from(["```", "~~~~", "``````"]),
)
def test_any_code_between_longer_fences_comes_back(code: str, fence: str) -> None:
    code = code.replace("\r", "\r\n")
    body = code if code.endswith("\n") or not code else code + "\n"
    longest = max(map(len, code.replace("~", "`").split("\n")), default=0)
    fence = fence[0] * max(len(fence), longest + 1)
    block, *_ = code_blocks(f"text\n{fence}py\n{body}{fence}\nafter\n")
    assert block.code == body
    assert block.closed


@pytest.mark.parametrize(
    ("info", "language", "target"),
    [
        ("python app/x.py", "python", "app/x.py"),
        ("app/x.py", "py", "app/x.py"),
        ("x.rs", "rs", "x.rs"),
        ("Makefile", "", "Makefile"),
        ("python:app/x.py", "python", "app/x.py"),
        ('js title="my app/a b.js"', "js", "my app/a b.js"),
        ("js title='a.js' {1,3}", "js", "a.js"),
        ("ts file=src/a.ts", "ts", "src/a.ts"),
        ("py {filename=x.py}", "py", "x.py"),
        ("python", "python", None),
        ("c++", "c++", None),
        ("objective-c", "objective-c", None),
        ("python linenos", "python", None),
        ("sh https://example.org/x.sh", "sh", None),
        ("", "", None),
    ],
)
def test_the_info_string_names_language_and_file(
    info: str, language: str, target: str | None
) -> None:
    block = only(f"```{info}\nx\n```\n")
    assert (block.language, block.target) == (language, target)


@pytest.mark.parametrize(
    ("before", "target"),
    [
        ("app/x.py:", "app/x.py"),
        ("`app/x.py`:\n", "app/x.py"),
        ("**`app/x.py`**", "app/x.py"),
        ("**app/x.py:**\n\n", "app/x.py"),
        ("### app/x.py", "app/x.py"),
        ("3. `app/x.py` (new file):", "app/x.py"),
        ("File: `app/__init__.py`", "app/__init__.py"),
        ("In `app/x.py`:", "app/x.py"),
        ("Create a new file `src/[id]/page.tsx`:", "src/[id]/page.tsx"),
        ("[app/x.py](app/x.py):", "app/x.py"),
        ("[x.py](app/x.py)", None),
        ("_x.py_", "x.py"),
        (".gitignore", ".gitignore"),
        ("../x.py", "../x.py"),
        ("Run `app/x.py` like this:", None),
        ("app/x.py and app/y.py:", None),
        ("Version 1.2:", None),
        ("either/or", None),
        ("app/x.py:\n\n\n\n", None),
        ("```\napp/x.py\n```", None),
    ],
)
def test_the_line_before_names_the_file(before: str, target: str | None) -> None:
    assert code_blocks(f"{before}\n```\nx\n```\n")[-1].target == target


@pytest.mark.parametrize(
    ("language", "first", "target"),
    [
        ("python", "# app/x.py", "app/x.py"),
        ("js", "// src/a.js", "src/a.js"),
        ("css", "/* a/b.css */", "a/b.css"),
        ("html", "<!-- index.html -->", "index.html"),
        ("sql", "-- File: db/up.sql", "db/up.sql"),
        ("python", "# os.path", None),
        ("python", "# see app/x.py", None),
        ("python", "#!/usr/bin/env python", None),
        ("markdown", "# README.md", None),
        ("python", "x = 1  # app/x.py", None),
        ("", "app/x.py\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE", "app/x.py"),
    ],
)
def test_a_first_comment_that_is_only_a_path_names_the_file(
    language: str, first: str, target: str | None
) -> None:
    block = only(f"```{language}\n{first}\nx\n```\n")
    assert block.target == target
    assert block.code == f"{first}\nx\n"


@pytest.mark.parametrize(
    ("headers", "target"),
    [
        (["--- a/app/x.py\n+++ b/app/x.py\n"], "app/x.py"),
        (["--- app/x.py\t2020-01-01\n+++ app/x.py\t2020-01-02\n"], "app/x.py"),
        (["--- /dev/null\n+++ b/app/x.py\n"], "app/x.py"),
        (["--- a/app/x.py\n+++ /dev/null\n"], "app/x.py"),
        (["--- a/x.py\n+++ b/x.py\n", "--- a/y.py\n+++ b/y.py\n"], None),
        (["--- a/x.py\n+++ b/x.py\n", "--- a/x.py\n+++ b/x.py\n"], "x.py"),
    ],
)
def test_a_diff_names_its_file(headers: list[str], target: str | None) -> None:
    code = "".join(f"{header}@@ -1 +1 @@\n-a\n+b\n" for header in headers)
    assert target_of("diff", code=code) == target


def test_the_nearest_word_wins() -> None:
    assert target_of("py a.py", before="b.py:", code="# c.py\n") == "a.py"
    assert target_of("py", before="b.py:", code="# c.py\n") == "b.py"
    assert target_of("py", before="text", code="# c.py\n") == "c.py"
