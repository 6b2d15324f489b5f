"""What a grammar says of the cursor, and which completions would break the code."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lsp.grammar import AFTER_CHARS, BEFORE_CHARS
from lsp.languages import LANGUAGES, Language
from lsp.syntax import Spot, breaks_syntax, spot_at

CURSOR = "█"

PYTHON = '''
import os
from pathlib import Path


class Store:
    """Keeps things, (but not [all."""

    limit: int = 3

    def __init__(self, root: Path, *, deep: bool = False) -> None:
        self.root = root
        self.items: dict[str, str] = {}

    @property
    def names(self):
        return sorted(
            name
            for name in self.items
            if not name.startswith("_")
        )

    async def load(self, name):
        if name in self.items and (
            name != "x"
        ):
            return self.items[name]
        with open(self.root / name, encoding="utf-8") as file:
            text = f"{name}: {file.read()!r}"
        match text:
            case "":
                return None
            case _:
                self.items[name] = text
        return lambda: (text, [1, 2], {"a": -1})


def main(*args, **kwargs):
    for name in ("ä", "😀"):
        try:
            print(Store(Path()).load(name), end="\\n")
        except OSError as error:
            raise SystemExit(1) from error
        else:
            continue
        finally:
            pass
'''
SCRIPT = """
import { read } from './files';

const PATTERN = /^[(\\/]+["']/g;

export class Store {
  #root = null;

  constructor(root, { deep = false } = {}) {
    this.#root = root;
    this.items = new Map();
  }

  async load(name) {
    if (this.items.has(name)) {
      return this.items.get(name);
    } else if (!name) {
      throw new Error(`no ${name} in ${this.#root}`);
    }
    const { text, size: n = 1 } = await read(this.#root, name);
    this.items.set(name, text?.trim() ?? '');
    return text;
  }

  get names() {
    return [...this.items.keys()]
      .filter((name) => !PATTERN.test(name))
      .map((name, i) => ({ name, i }));
  }
}

export default function main(args) {
  switch (args.length) {
    case 0:
      return 1;
    default:
      args.forEach(async (arg) => {
        await new Store(arg).load('x');
      });
  }
}
"""
TYPED = """
export interface Box<T extends object> {
  readonly value: T;
  size?: number;
}

type Keys = 'a' | 'b';

enum Kind {
  One = 1,
  Two,
}

export abstract class Store<T> implements Box<T & object> {
  constructor(private readonly root: string, public value: T) {}

  load<K extends keyof T>(key: K, deep = false): T[K] | undefined {
    const found = this.value[key] as T[K];
    return deep ? found : undefined;
  }

  protected abstract drop(): Promise<void>;
}

export const sum = (a: number, b = 1): number => a + b;
"""
SOURCES = {"python": PYTHON, "javascript": SCRIPT, "typescript": TYPED, "typescriptreact": SCRIPT}


def split(marked: str) -> tuple[str, str]:
    before, after = marked.split(CURSOR)
    return before, after


@pytest.mark.parametrize("rest", [True, False], ids=["all of the file", "written so far"])
@pytest.mark.parametrize("language", SOURCES)
def test_right_code_is_never_refused(language: str, rest: bool) -> None:
    lines = SOURCES[language].split("\n")
    for at, line in enumerate(lines):
        start = len(line) - len(line.lstrip())
        for column in {start, (start + len(line)) // 2, len(line) - 1}:
            if not line[max(column, 0) :].strip():
                continue
            before = "\n".join([*lines[:at], line[:column]])
            after = "\n" + "\n".join(lines[at + 1 :]) if rest else "\n"
            assert not breaks_syntax(language, before, line[column:], after), line


WRONG = [
    ("python", "total = █\n", "= 3"),
    ("python", "total = █\n", "a b"),
    ("python", "total = █\n", "a + / b"),
    ("python", "total = █\nprint(total)\n", "(a]"),
    ("python", "import os\n\n█\n", "int main(void) { return 0; }"),
    ("python", "import os\n\n█\n", "function f() { return 1; }"),
    ("python", "def f(a):\n    █\n    return a\n", "else: b = 2"),
    ("python", "def f(a):\n    █\n    return a\n", "if a b:"),
    ("python", "def f(a):\n    b = a█\n    return b\n", ")"),
    ("python", "x = [1, █]\n", "2; 3"),
    ("python", "class A:\n    █\n\n\nx = 1\n", "def f(self) return 1"),
    ("javascript", "const n = █;\n", "a + * b"),
    ("javascript", "const n = 1;\n█\n", "for x in xs:"),
    ("javascript", "const n = 1;\n█\nrun(n);\n", "def f(a):"),
    ("javascript", "const n = 1;\n█\n", "let m: number = 2;"),
    ("javascript", "function f() {\n  █\n}\n", "return 1; }"),
    ("javascript", "function f() {\n  █\n}\n", "const = 3;"),
    ("typescript", "const n = █;\n", "<div>{n}</div>"),
    ("typescript", "interface A {\n  █\n}\n", "b = => 3"),
    ("typescript", "const n: █ = 1;\n", "Map<string"),
]


@pytest.mark.parametrize(("language", "marked", "insertion"), WRONG)
def test_what_cannot_be_right_is_refused(language: str, marked: str, insertion: str) -> None:
    before, after = split(marked)
    assert breaks_syntax(language, before, insertion, after)
    assert breaks_syntax(language, before.replace("\n", "\r\n"), insertion, after)
    assert breaks_syntax(language, "# ä😀\n" * (language == "python") + before, insertion, after)


UNFINISHED = [
    ("python", "xs = [1]\n█\n", "for x in xs:"),
    ("python", "xs = [1]\n█\nprint(xs)\n", "def f(a, b):"),
    ("python", "total = █\n", "compute("),
    ("python", "total = █\n", "a +"),
    ("python", "total = compute(a, █\n", "b"),
    ("python", "class A:\n    █\n", "@property"),
    ("python", "def f():\n    try:█\n", "\n        go()"),
    ("python", 'def f(a):\n    """█\n', "Says it."),
    ("python", "name = 'a█\n", "b"),
    ("python", "# note █\n", "on )( things"),
    ("python", "d = {\n    █\n}\n", "'a':"),
    ("javascript", "const f = █\n", "(a) => {"),
    ("javascript", "run(█\n", "() => {\n  a();"),
    ("javascript", "if (a) {\n  b();\n} █\n", "else {"),
    ("javascript", "const o = {\n  █\n};\n", "a: 1,"),
    ("typescript", "class A {\n  █\n}\n", "get b(): number {"),
    ("typescript", "/**\n * █\n", "Adds {@link a} to ("),
    ("typescript", "import { █ } from './a';\n", "b, c"),
]


@pytest.mark.parametrize(("language", "marked", "insertion"), UNFINISHED)
def test_what_may_still_become_right_is_let_pass(
    language: str, marked: str, insertion: str
) -> None:
    before, after = split(marked)
    assert not breaks_syntax(language, before, insertion, after)


def test_code_that_was_wrong_before_may_stay_so() -> None:
    assert not breaks_syntax("python", "def broken(:\n    pass\n\n\nx = ", "1", "\n")


def test_only_what_is_known_to_be_judged_well_is_judged() -> None:
    for language in ("c", "markdown", "quark", "json", "shellscript"):
        assert not breaks_syntax(language, "", ")))", "")
    assert not breaks_syntax("python", "x = 1\n", "   ", "")


text = st.text(alphabet="ab =:([{}])'\"#\n\té😀", max_size=12)


@settings(deadline=None, max_examples=60)
@given(before=text, insertion=text, after=text, language=st.sampled_from(sorted(SOURCES)))
def test_any_text_gets_an_answer_and_the_same_one_twice(
    before: str, insertion: str, after: str, language: str
) -> None:
    first = breaks_syntax(language, before, insertion, after)
    assert breaks_syntax(language, before, insertion, after) == first


def empty(header: str) -> Spot:
    return Spot(inside="code", empty=True, header=header)


def full(header: str) -> Spot:
    return Spot(inside="code", empty=False, header=header)


SPOTS = [
    ("python", "x = 1\n█\n", Spot(inside="code")),
    ("python", "x = 'a█'\n", Spot(inside="string")),
    ("python", "x = f'a{█}'\n", Spot(inside="code")),
    ("python", "# a █\n", Spot(inside="comment")),
    ("python", "# a:█\n", Spot(inside="comment")),
    ("python", "def f():█\n", empty("def f():")),
    ("python", "def f():\n    █\n", empty("def f():")),
    ("python", "def f():\n    '''D.'''\n█\n", empty("def f():")),
    ("python", "def f():\n    a = 1\n    █\n", full("def f():")),
    ("python", "def f(\n    a,\n):\n    █\n", empty("def f(\n    a,\n):")),
    ("python", "d = {\n    █\n}\n", Spot(inside="code")),
    ("javascript", "x = `a ${█}`;\n", Spot(inside="code")),
    ("javascript", "x = `a █`;\n", Spot(inside="string")),
    ("javascript", "/* █ */\n", Spot(inside="comment")),
    ("javascript", "if (a) {\n  █\n}\n", empty("if (a) {")),
    ("typescript", "class A {\n  f(): void {█\n  }\n}\n", empty("  f(): void {")),
    ("go", "package a\n\nfunc F() {\n\t█\n}\n", empty("func F() {")),
    ("rust", "fn f() {\n    // why\n    █\n}\n", empty("fn f() {")),
    ("java", "class A {\n  void f() {\n    int a = 1;\n    █\n  }\n}\n", full("  void f() {")),
    ("c", "int f(void)\n{\n    █\n}\n", empty("int f(void)\n{")),
    ("cpp", "void A::f() {\n  █\n}\n", empty("void A::f() {")),
    ("csharp", "class A\n{\n  void F()\n  {\n    █\n  }\n}\n", empty("  void F()\n  {")),
    ("php", "<?php\nfunction f() {\n    █\n}\n", empty("function f() {")),
    ("css", ".a {\n  █\n}\n", empty(".a {")),
    ("html", "<!-- █ -->\n", Spot(inside="comment")),
    ("shellscript", 'echo "a █"\n', Spot(inside="string")),
    ("ruby", 'x = "a █"\n', Spot(inside="string")),
]


@pytest.mark.parametrize(("language", "marked", "spot"), SPOTS)
def test_where_the_cursor_is(language: str, marked: str, spot: Spot) -> None:
    for text in (marked, marked.replace("\n", "\r\n")):
        found = spot_at(LANGUAGES[language], *split(text))
        assert found is not None
        assert replace(found, unsure=False) == spot


def test_code_that_does_not_parse_is_known_as_such() -> None:
    found = spot_at(LANGUAGES["python"], "x = (1, ]]\ny = ", " )) z\n")
    assert found is not None
    assert found.unsure


def test_a_language_without_a_grammar_is_answered_with_nothing() -> None:
    assert spot_at(LANGUAGES["lua"], "x = ", "") is None


def test_a_grammar_that_is_not_there_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    missing = Language(name="gone", grammar=("no_such_grammar", "language"), gated=True)
    with caplog.at_level(logging.WARNING):
        assert spot_at(missing, "a", "b") is None
        assert spot_at(missing, "a", "b") is None
    assert [record.getMessage() for record in caplog.records] == [
        "No grammar from no_such_grammar: No module named 'no_such_grammar'. "
        "Indentation alone decides there."
    ]


@pytest.mark.parametrize("language", [name for name, row in LANGUAGES.items() if row.grammar])
def test_every_grammar_of_the_table_is_there(
    language: str, caplog: pytest.LogCaptureFixture
) -> None:
    spot_at(LANGUAGES[language], "a", "b")
    assert not caplog.records


def test_a_large_file_is_cut_where_something_begins() -> None:
    unit = "def f(a):\n    return a\n\n\n"
    many = unit * (4 * BEFORE_CHARS // len(unit))
    spot = spot_at(LANGUAGES["python"], many + "def g():\n    ", "\n\n\n" + many)
    assert spot == Spot(inside="code", empty=True, header="def g():")
    assert breaks_syntax("python", many + "x = ", "= 1", "\n" + many)
    assert not breaks_syntax("python", many + "x = ", "1", "\n" + many)


def test_a_large_file_without_a_place_to_cut_is_not_judged() -> None:
    row = "    'a': [1, 2, 3],\n"
    before = "x = {\n" + row * (3 * BEFORE_CHARS // len(row))
    after = row * (5 * AFTER_CHARS // len(row)) + "}\n"
    assert spot_at(LANGUAGES["python"], before, after) is None
    assert not breaks_syntax("python", before, "= = 3\n", after)
