"""What is known of each language: how it writes comments, strings and blocks, and its grammar.

One table, by the names that editors use; a language that is not in it gets careful defaults. Knows
no document and imports no grammar: a grammar is named here and loaded by `lsp.syntax`.

Invariant: `language_of` always answers, and never by the file's name while the client named a
language that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from lsp.language_names import ALIASES, FILES, SUFFIXES

Blocks = Literal["colon", "brace", "word", "tag", "none"]
"""What opens a block: a colon, a bracket, a word such as `do`, an element, or nothing."""


class Language(Struct, frozen=True, kw_only=True):
    """One language."""

    name: str
    blocks: Blocks = "brace"
    comments: tuple[str, ...] = ()
    """What starts a comment that ends with its line."""
    long_comments: tuple[tuple[str, str], ...] = ()
    quotes: tuple[str, ...] = ('"', "'")
    """Delimiters of strings that end with their line."""
    long_quotes: tuple[str, ...] = ()
    """Delimiters of strings that may go on over lines; the longer ones first."""
    chars: bool = False
    """`'` delimits one character (or marks a lifetime), never a string."""
    loose_brackets: bool = False
    """A closing bracket may stand without an opening one."""
    regexes: bool = False
    """Has regular expressions between slashes."""
    grammar: tuple[str, str] | None = None
    """Module and function of the tree-sitter grammar."""
    gated: bool = False
    """A completion that breaks the syntax is not shown."""
    prose: bool = False
    """Sentences and fences are part of the language."""
    markup: bool = False
    """`<s>` is an element, not a model's token."""
    unit: str = "    "
    """Indentation of one level where the document has none to follow."""
    openers: tuple[str, ...] = ()
    """Words at a line's start or end that open a block."""
    closers: tuple[str, ...] = ()
    """Words that a block's last line starts with."""


_TRIPLE = ('"""', "'''")
_C = Language(
    name="c",
    comments=("//",),
    long_comments=(("/*", "*/"),),
    quotes=('"',),
    chars=True,
    grammar=("tree_sitter_c", "language"),
)
_BRACED = replace(_C, name="", grammar=None)
_SCRIPT = replace(
    _BRACED,
    name="javascript",
    quotes=('"', "'"),
    long_quotes=("`",),
    chars=False,
    regexes=True,
    grammar=("tree_sitter_javascript", "language"),
    gated=True,
    unit="  ",
)
_HASHED = Language(name="", comments=("#",))
_MARKED = Language(
    name="html",
    blocks="tag",
    long_comments=(("<!--", "-->"),),
    quotes=(),
    grammar=("tree_sitter_html", "language"),
    markup=True,
    unit="  ",
)
_ELEMENTS = replace(_MARKED, name="", grammar=None)
_TEXT = Language(name="", blocks="none", quotes=(), prose=True)
_RUBY = replace(
    _HASHED,
    name="ruby",
    blocks="word",
    grammar=("tree_sitter_ruby", "language"),
    unit="  ",
    openers=(
        *("def", "class", "module", "if", "unless", "while", "until", "for", "case", "begin"),
        *("do", "else", "elsif", "when", "rescue", "ensure"),
    ),
    closers=("end",),
)
_SHELL = replace(
    _HASHED,
    name="shellscript",
    blocks="word",
    loose_brackets=True,
    quotes=(),
    long_quotes=('"', "'"),
    grammar=("tree_sitter_bash", "language"),
    openers=("then", "do", "else", "in"),
    closers=("fi", "done", "esac"),
)

UNKNOWN = Language(name="", blocks="brace", comments=("//", "#"))
"""What is assumed of a language that is not known."""

_ALL = (
    replace(
        _HASHED,
        name="python",
        blocks="colon",
        long_quotes=_TRIPLE,
        grammar=("tree_sitter_python", "language"),
        gated=True,
    ),
    _SCRIPT,
    replace(_SCRIPT, name="javascriptreact", markup=True),
    replace(_SCRIPT, name="typescript", grammar=("tree_sitter_typescript", "language_typescript")),
    replace(
        _SCRIPT,
        name="typescriptreact",
        grammar=("tree_sitter_typescript", "language_tsx"),
        markup=True,
    ),
    replace(
        _C, name="rust", quotes=(), long_quotes=('"',), grammar=("tree_sitter_rust", "language")
    ),
    replace(_C, name="go", long_quotes=("`",), grammar=("tree_sitter_go", "language"), unit="\t"),
    replace(_C, name="java", long_quotes=('"""',), grammar=("tree_sitter_java", "language")),
    _C,
    replace(_C, name="cpp", grammar=("tree_sitter_cpp", "language")),
    replace(_C, name="csharp", long_quotes=('"""',), grammar=("tree_sitter_c_sharp", "language")),
    replace(_BRACED, name="objective-c"),
    replace(_BRACED, name="kotlin", long_quotes=('"""',)),
    replace(_BRACED, name="swift", chars=False, long_quotes=('"""',)),
    replace(_BRACED, name="scala", long_quotes=('"""',)),
    replace(_BRACED, name="groovy", chars=False, quotes=('"', "'"), long_quotes=_TRIPLE),
    replace(_BRACED, name="dart", chars=False, quotes=('"', "'"), long_quotes=_TRIPLE, unit="  "),
    replace(_BRACED, name="zig"),
    replace(_BRACED, name="protobuf", chars=False, quotes=('"', "'"), unit="  "),
    replace(_HASHED, name="graphql", long_quotes=('"""',), unit="  "),
    replace(_BRACED, name="terraform", comments=("#", "//"), chars=False, unit="  "),
    replace(_HASHED, name="nix", long_quotes=("''", '"'), quotes=(), unit="  "),
    replace(_HASHED, name="perl", loose_brackets=True),
    replace(_HASHED, name="r", unit="  "),
    replace(
        _BRACED,
        name="php",
        comments=("//", "#"),
        quotes=(),
        long_quotes=('"', "'"),
        chars=False,
        grammar=("tree_sitter_php", "language_php"),
        markup=True,
    ),
    replace(
        _BRACED,
        name="json",
        chars=False,
        grammar=("tree_sitter_json", "language"),
        unit="  ",
    ),
    Language(
        name="css",
        long_comments=(("/*", "*/"),),
        grammar=("tree_sitter_css", "language"),
        unit="  ",
    ),
    Language(name="scss", comments=("//",), long_comments=(("/*", "*/"),), unit="  "),
    _MARKED,
    replace(_ELEMENTS, name="xml"),
    replace(_ELEMENTS, name="vue"),
    replace(_ELEMENTS, name="svelte"),
    _RUBY,
    _SHELL,
    replace(
        _RUBY,
        name="elixir",
        grammar=None,
        long_quotes=('"""',),
        openers=("do", "else", "->", "fn", "rescue", "after"),
    ),
    replace(_RUBY, name="julia", grammar=None, long_quotes=('"""',), chars=True, quotes=('"',)),
    replace(
        _RUBY,
        name="lua",
        grammar=None,
        comments=("--",),
        long_quotes=("]]",),
        openers=("function", "then", "do", "else", "repeat"),
        closers=("end", "until"),
    ),
    Language(name="sql", blocks="none", comments=("--",), long_comments=(("/*", "*/"),)),
    Language(
        name="haskell",
        loose_brackets=True,
        blocks="none",
        comments=("--",),
        quotes=('"',),
        chars=True,
    ),
    replace(_HASHED, name="yaml", blocks="colon", prose=True, unit="  "),
    replace(_HASHED, name="toml", blocks="none", long_quotes=_TRIPLE),
    replace(_HASHED, name="ini", blocks="none", comments=("#", ";"), quotes=()),
    replace(_HASHED, name="dockerfile", blocks="none"),
    replace(_HASHED, name="makefile", loose_brackets=True, blocks="none", quotes=(), unit="\t"),
    replace(_HASHED, name="cmake", quotes=('"',), unit="  "),
    Language(
        name="latex",
        loose_brackets=True,
        blocks="none",
        comments=("%",),
        quotes=(),
        prose=True,
        unit="  ",
    ),
    replace(_TEXT, name="markdown", markup=True),
    replace(_TEXT, name="restructuredtext"),
    replace(_TEXT, name="plaintext"),
    replace(_TEXT, name="git-commit"),
    replace(_TEXT, name="log"),
    replace(_TEXT, name="csv"),
)

LANGUAGES: Mapping[str, Language] = {language.name: language for language in _ALL}


def canonical(name: str) -> str:
    """The table's name for a client's name of a language."""
    lower = name.lower()
    return ALIASES.get(lower, lower)


def language_of(name: str, path: PurePath | None = None) -> Language:
    """The language by the client's name for it or, if that says nothing, by the file's name."""
    known = LANGUAGES.get(canonical(name))
    if known is not None and known.name != "plaintext":
        return known
    if path is not None and (not name or known is not None):
        lower = path.name.lower()
        by_path = FILES.get(lower) or SUFFIXES.get(PurePath(lower).suffix)
        if by_path is not None:
            return LANGUAGES[by_path]
    return known or replace(UNKNOWN, name=canonical(name))
