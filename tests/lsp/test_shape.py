"""Laws of shaping: whatever the model says, and in whatever pieces."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lsp.document import Snapshot
from lsp.languages import LANGUAGES, language_of
from lsp.settings import EditorSettings
from lsp.shape import LINE_TOKENS, Shape, Trimmer, shape_for, skip_reason
from lsp.shape_place import windows
from lsp.shape_style import depth

CURSOR = "█"

PLACES = {
    "python": [
        "import os\n\n\ndef f(a):\n    b = a\n    █\n    return b\n",
        "import os\n\n\ndef f(a):█\n\n\ndef g():\n    return 1\n",
        "import os\nx = call(█)\n",
        "import os\nx = [1, █] + rest\n",
        'import os\nx = "█"\n',
        "class A:\n    def f(self):\n        if self.x:\n            █\n        return 2\n",
        "total = █\n",
    ],
    "javascript": [
        "const a = 1;\nfunction f(a) {█\n}\n",
        "const a = 1;\nfunction f(a) {█}\n",
        "const a = 1;\nrun(█);\n",
        "const a = 1;\nif (█) {\n  go();\n}\n",
        "const a = 1;\nrun(() => {\n  a();\n  █\n});\n",
    ],
    "go": [
        "package a\n\nfunc F(n int) int {\n\tm := n\n\t█\n\treturn m\n}\n",
        "package a\n\nfunc F(n int) int {█\n}\n",
    ],
    "quark": ["frob x {\n  y\n  █\n}\n"],
    "markdown": ["# Title\n\nSome words █ and more.\n", "# Title\n\n█\n"],
}
TOKENS = ["<|fim_middle|>", "<|endoftext|>", "<|im_end|>", "<file_sep>", "<EOT>", "<｜fim▁end｜>"]
PIECES = [
    *("a", "b1", "return a", "x = ", "for i in xs:", "if (a) {", "else", "fn(", "print(b)"),
    *("(", ")", "[", "]", "{", "}", ",", ";", ":", "'", '"', "`", "\n", "\n\n", "\r\n", "\r", " "),
    *(
        "    ",
        "\t",
        "  ",
        "\n    ",
        "\n        ",
        "\n\t",
        "# note",
        "// note",
        "```",
        "```python\n",
    ),
    *("Here is the code:\n", "This function adds two numbers.", "return b", "return m", "go();"),
    *TOKENS,
]
relaxed = settings(deadline=None)
"""The machine may be busy, and a first answer loads a grammar."""
placed = st.sampled_from([(name, text) for name, texts in PLACES.items() for text in texts])
said = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def snapshot_at(language: str, marked: str, *, crlf: bool = False) -> Snapshot:
    text = marked.replace("\n", "\r\n") if crlf else marked
    return Snapshot(
        uri="file:///a",
        version=1,
        language=language,
        path=None,
        text=text.replace(CURSOR, ""),
        offset=text.index(CURSOR),
        newline="\r\n" if crlf else "\n",
    )


def shaped(snapshot: Snapshot, *pieces: str, explicit: bool = False) -> tuple[str, int]:
    """The result, and how many characters behind the cursor it takes the place of."""
    trimmer = Trimmer(snapshot, shape_for(snapshot, EditorSettings(), explicit))
    for piece in pieces:
        trimmer.push(piece)
    start, end = trimmer.span()
    assert start == snapshot.offset
    return trimmer.result(), end - start


@relaxed
@given(place=placed, text=said, cuts=st.sets(st.integers(0, 60)), explicit=st.booleans())
def test_the_pieces_do_not_matter(
    place: tuple[str, str], text: str, cuts: set[int], explicit: bool
) -> None:
    snapshot = snapshot_at(*place)
    at = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[a:b] for a, b in pairwise(at)]
    assert shaped(snapshot, *pieces, explicit=explicit) == shaped(snapshot, text, explicit=explicit)


@relaxed
@given(place=placed, text=said, more=said, explicit=st.booleans())
def test_what_follows_the_end_does_not_matter(
    place: tuple[str, str], text: str, more: str, explicit: bool
) -> None:
    snapshot = snapshot_at(*place)
    shape = shape_for(snapshot, EditorSettings(), explicit)
    trimmer = Trimmer(snapshot, shape)
    if trimmer.push(text):
        result = trimmer.result(), trimmer.span()
        assert trimmer.push(more)
        assert (trimmer.result(), trimmer.span()) == result


@relaxed
@given(place=placed, text=said, crlf=st.booleans(), explicit=st.booleans())
def test_feeding_a_result_back_changes_nothing(
    place: tuple[str, str], text: str, crlf: bool, explicit: bool
) -> None:
    snapshot = snapshot_at(*place, crlf=crlf)
    result, covers = shaped(snapshot, text, explicit=explicit)
    assert shaped(snapshot, result, explicit=explicit) == (result, covers)


@relaxed
@given(place=placed, text=said, token=st.sampled_from(TOKENS), explicit=st.booleans())
def test_no_token_of_a_model_is_ever_shown(
    place: tuple[str, str], text: str, token: str, explicit: bool
) -> None:
    snapshot = snapshot_at(*place)
    for answer in (text + token, token + text, text[:5] + token + text[5:]):
        result, _ = shaped(snapshot, answer, explicit=explicit)
        assert not [known for known in TOKENS if known in result]
    torn = "a" + token[:6]
    if token != "<EOT>":
        assert token[:6] not in shaped(snapshot, torn)[0]


@relaxed
@given(place=placed, text=said, explicit=st.booleans())
def test_the_next_line_is_never_said_again(
    place: tuple[str, str], text: str, explicit: bool
) -> None:
    snapshot = snapshot_at(*place)
    result, _ = shaped(snapshot, text, explicit=explicit)
    if not result:
        return
    line = snapshot.prefix.rpartition("\n")[2]
    tail, _, below = snapshot.suffix.partition("\n")
    following = next((row for row in below.split("\n") if row.strip()), "")
    shown = (line + result + tail).split("\n")
    if following:
        assert (depth(shown[-1]), shown[-1].strip()) != (depth(following), following.strip())


@relaxed
@given(place=placed, text=said, explicit=st.booleans())
def test_the_rest_of_the_line_is_never_said_again(
    place: tuple[str, str], text: str, explicit: bool
) -> None:
    snapshot = snapshot_at(*place)
    tail = snapshot.suffix.partition("\n")[0].strip()
    words = tail.strip(")]}\"'`;, ")
    result, covers = shaped(snapshot, text + snapshot.suffix, explicit=explicit)
    if words and result:
        assert not result.rstrip().endswith(tail)
        assert not covers


def unbalanced(text: str) -> int:
    """Closing brackets that close nothing; for texts without strings and comments."""
    opened: list[str] = []
    found = 0
    for character in text:
        if character in "([{":
            opened.append(character)
        elif character in ")]}":
            if opened and "([{".index(opened[-1]) == ")]}".index(character):
                opened.pop()
            else:
                found += 1
    return found


def own_closers(text: str) -> str:
    """What closes the brackets that a text opens and leaves open at its end."""
    opened: list[str] = []
    for character in text:
        if character in "([{":
            opened.append(")]}"["([{".index(character)])
        elif opened and character == opened[-1]:
            opened.pop()
    return "".join(reversed(opened))


def crossed(text: str) -> bool:
    """Whether brackets of the text's own close in the wrong order, which no place can mend."""
    opened: list[str] = []
    for character in text:
        if character in "([{":
            opened.append(character)
        elif character in ")]}" and opened and opened.pop() != "([{"[")]}".index(character)]:
            return True
    return False


CODE = [piece for piece in PIECES if not set(piece) & set("'\"`#/<")]


@relaxed
@given(
    place=placed,
    text=st.lists(st.sampled_from(CODE), max_size=12).map("".join),
    explicit=st.booleans(),
)
def test_no_closing_bracket_too_many(place: tuple[str, str], text: str, explicit: bool) -> None:
    snapshot = snapshot_at(*place)
    if language_of(snapshot.language).prose or '"' in snapshot.text:
        return
    assume(not crossed(text))
    result, covers = shaped(snapshot, text, explicit=explicit)
    rest = snapshot.suffix[covers:]
    # What is open at the end of the line may be closed by what is written next, or stands there.
    closers = "" if rest.partition("\n")[0].strip() else own_closers(result)
    codes = [snapshot.prefix + result + closing + rest for closing in (closers, "")]
    assert min(map(unbalanced, codes)) <= unbalanced(snapshot.text)


@relaxed
@given(place=placed, text=said, crlf=st.booleans(), explicit=st.booleans())
def test_line_ends_and_indentation_follow_the_document(
    place: tuple[str, str], text: str, crlf: bool, explicit: bool
) -> None:
    snapshot = snapshot_at(*place, crlf=crlf)
    result, covers = shaped(snapshot, text, explicit=explicit)
    assert "\r" not in result.replace("\r\n", "") if crlf else "\r" not in result
    assert "\n" not in result.replace(snapshot.newline, "")
    replaced = snapshot.suffix[:covers]
    assert not replaced.strip(" \t)]}>\"'`;,")
    for line in result.split(snapshot.newline)[1:]:
        lead = line[: len(line) - len(line.lstrip())]
        if snapshot.language == "go":
            assert "    " not in lead
        elif snapshot.language in ("python", "javascript") and "\n  " in snapshot.text:
            assert "\t" not in lead


@relaxed
@given(place=placed, text=said)
def test_one_line_where_one_line_is_wanted(place: tuple[str, str], text: str) -> None:
    snapshot = snapshot_at(*place)
    shape = shape_for(snapshot, EditorSettings(multiline="never"), explicit=True)
    trimmer = Trimmer(snapshot, shape)
    trimmer.push(text)
    assert not shape.multiline
    assert "\n" not in trimmer.result()


@relaxed
@given(place=placed, text=said, explicit=st.booleans())
def test_a_result_says_something_and_ends_with_it(
    place: tuple[str, str], text: str, explicit: bool
) -> None:
    snapshot = snapshot_at(*place)
    result, _ = shaped(snapshot, text, explicit=explicit)
    if result and not snapshot.suffix.partition("\n")[0].strip():
        assert result == result.rstrip()
    assert not result or result.strip()


PYTHON = '''
import os


class Store:
    """Keeps things."""

    def __init__(self, root):
        self.root = root
        self.items = {}

    def load(self, name):
        if name in self.items:
            return self.items[name]
        path = os.path.join(self.root, name)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.items[name] = text
        return text

    def names(self):
        return sorted(
            name
            for name in self.items
            if not name.startswith("_")
        )


def main():
    store = Store(".")
    for name in ("a", "b"):
        try:
            print(store.load(name))
        except OSError as error:
            print(f"{name}: {error}")
'''
SCRIPT = """
import { read } from './files';

export class Store {
  constructor(root) {
    this.root = root;
    this.items = new Map();
  }

  async load(name) {
    if (this.items.has(name)) {
      return this.items.get(name);
    }
    const text = await read(`${this.root}/${name}`);
    this.items.set(name, text);
    return text;
  }

  names() {
    return [...this.items.keys()]
      .filter((name) => !name.startsWith('_'))
      .sort();
  }
}
"""
GO = """
package store

import "os"

type Store struct {
\troot  string
\titems map[string]string
}

func (s *Store) Load(name string) (string, error) {
\tif text, ok := s.items[name]; ok {
\t\treturn text, nil
\t}
\tdata, err := os.ReadFile(s.root + "/" + name)
\tif err != nil {
\t\treturn "", err
\t}
\ts.items[name] = string(data)
\treturn string(data), nil
}
"""
SOURCES = {"python": PYTHON, "javascript": SCRIPT, "typescript": SCRIPT, "go": GO}


def holes(source: str) -> list[int]:
    """Every line with text, by number."""
    return [at for at, line in enumerate(source.split("\n")) if line.strip()]


@pytest.mark.parametrize("crlf", [False, True])
@pytest.mark.parametrize("language", SOURCES)
def test_a_line_without_fault_passes_unchanged(language: str, crlf: bool) -> None:
    lines = SOURCES[language].split("\n")
    for at in holes(SOURCES[language]):
        line = lines[at]
        start = len(line) - len(line.lstrip())
        for column in {start, (start + len(line)) // 2}:
            marked = "\n".join([*lines[:at], line[:column] + CURSOR, *lines[at + 1 :]])
            snapshot = snapshot_at(language, marked, crlf=crlf)
            answer = "\n".join([line[column:], *lines[at + 1 :]])
            result, covers = shaped(snapshot, answer)
            wanted = line[column:].rstrip()
            several = shape_for(snapshot, EditorSettings(), explicit=False).multiline
            assert not covers
            assert result.split(snapshot.newline)[0] == wanted if several else result == wanted


@pytest.mark.parametrize("crlf", [False, True])
@pytest.mark.parametrize("language", SOURCES)
def test_a_body_without_fault_passes_unchanged(language: str, crlf: bool) -> None:
    lines = SOURCES[language].split("\n")
    seen = 0
    for at in holes(SOURCES[language]):
        end = at + 1
        while end < len(lines) and (not lines[end].strip() or depth(lines[end]) > depth(lines[at])):
            end += 1
        while not lines[end - 1].strip():
            end -= 1
        if end == at + 1 or not lines[at].endswith((":", "{")):
            continue
        seen += 1
        marked = "\n".join([*lines[:at], lines[at] + CURSOR, *lines[end:]])
        snapshot = snapshot_at(language, marked, crlf=crlf)
        result, covers = shaped(snapshot, "\n" + "\n".join(lines[at + 1 :]))
        body = snapshot.newline.join(["", *lines[at + 1 : end]])
        assert (result, covers) == (body, 0)
    assert seen > 3


def test_it_stops_as_soon_as_the_line_is_complete() -> None:
    snapshot = snapshot_at("python", "total = █\nprint(total)\n")
    trimmer = Trimmer(snapshot, shape_for(snapshot, EditorSettings(), explicit=False))
    assert not trimmer.push("sum(")
    assert not trimmer.push("rows)")
    assert trimmer.push("\n")
    assert trimmer.result() == "sum(rows)"


def test_it_stops_as_soon_as_the_block_is_left() -> None:
    snapshot = snapshot_at("python", "def f(a):█\n\nf(1)\n")
    trimmer = Trimmer(snapshot, shape_for(snapshot, EditorSettings(), explicit=False))
    assert not trimmer.push("\n    b = a\n    return b\n\n\n")
    assert not trimmer.push("def g()")
    assert trimmer.push(":\n")
    assert trimmer.result() == "\n    b = a\n    return b"


def test_it_stops_at_the_closing_brace_and_not_a_line_later() -> None:
    snapshot = snapshot_at("c", "int f(void) {█\n")
    trimmer = Trimmer(snapshot, shape_for(snapshot, EditorSettings(), explicit=False))
    assert not trimmer.push("\n    return 1;\n}")
    assert trimmer.push("\n")
    assert trimmer.result() == "\n    return 1;\n}"


def shape_at(marked: str, language: str = "python", **settings: object) -> Shape:
    explicit = bool(settings.pop("explicit", False))
    return shape_for(
        snapshot_at(language, marked),
        EditorSettings(**settings),  # type: ignore[arg-type]
        explicit,
    )


def test_the_request_is_small_where_a_line_is_wanted() -> None:
    line, block = shape_at("total = █\n"), shape_at("def f():█\n")
    assert (line.multiline, line.max_tokens, line.stop) == (False, LINE_TOKENS, ("\n",))
    assert (block.multiline, block.max_tokens, block.stop) == (True, 96, ())
    assert shape_at("total = █\n", max_tokens=10).max_tokens == 10
    assert shape_at("def f():\n    a = 1\n    █\n").stop == ()
    assert shape_at("a = 1\n█\n", explicit=True).multiline
    assert not shape_at("a = f(█) + 1\n", explicit=True, multiline="always").multiline


@pytest.mark.parametrize(
    ("marked", "language", "indent"),
    [
        ("def f():\n  a()\n  if b:\n    c()\n█\n", "python", "  "),
        ("def f():\n\ta()\n█\n", "python", "\t"),
        ("package a\n\n█\n", "go", "\t"),
        ("const a = 1;\n█\n", "javascript", "  "),
        ("a = 1\n█\n", "python", "    "),
    ],
)
def test_the_indentation_is_the_document_s(marked: str, language: str, indent: str) -> None:
    assert shape_at(marked, language).indent == indent


def test_only_a_window_is_looked_at() -> None:
    big = "x = 1\n" * 200_000
    before, after = windows(snapshot_at("python", f"{big}def f():█\n{big}"))
    assert len(before) < 30_000
    assert len(after) < 10_000
    assert before.endswith("def f():")
    snapshot = snapshot_at("python", f"{big}def f():█\n{big}")
    assert shaped(snapshot, "\n    return 1\nx = 1\n")[0] == "\n    return 1"


def test_one_endless_line_is_skipped() -> None:
    long = "a" * 300_000
    snapshot = snapshot_at("javascript", f"{long} █\n")
    assert skip_reason(snapshot, EditorSettings(), explicit=True) == "a very long line"
    assert skip_reason(snapshot_at("python", "a = 1\nb = █\n"), EditorSettings()) is None


def test_a_buffer_is_secret_by_the_name_it_will_have() -> None:
    snapshot = Snapshot(
        uri="untitled:/home/me/.env", version=1, language="", path=None, text="KEY=", offset=4
    )
    assert skip_reason(snapshot, EditorSettings(), explicit=True) == "a file of secrets"


def test_importing_it_imports_no_grammar() -> None:
    code = "import sys, lsp.shape, lsp.syntax; sys.exit('tree_sitter' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "path", "found"),
    [
        ("python", None, "python"),
        ("sh", None, "shellscript"),
        ("TypeScriptReact", None, "typescriptreact"),
        ("", "a/b.rs", "rust"),
        ("", "Makefile", "makefile"),
        ("plaintext", "notes.py", "python"),
        ("plaintext", "notes.txt", "plaintext"),
        ("quark", "a.py", "quark"),
        ("", None, ""),
    ],
)
def test_a_language_is_found(name: str, path: str | None, found: str) -> None:
    assert language_of(name, Path(path) if path else None).name == found


def test_every_name_leads_to_a_language() -> None:
    from lsp.language_names import ALIASES, FILES, SUFFIXES

    for names in (ALIASES, FILES, SUFFIXES):
        assert set(names.values()) <= set(LANGUAGES)
        assert all(name == name.lower() for name in names)
