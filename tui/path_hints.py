"""Which file a block of code says it belongs to, read from the words around and in it.

Owns the forms in which models name a file: the info string, a line that is only a path, a first
comment that is only a path, the header of a diff. Knows no file system: a hint is text that was
written down, whether it may be used is `edits`' business.

Invariant: a hint is a path as it was written, alone in its place; prose that mentions one gives
none, and several different ones give none.
"""

from __future__ import annotations

import re

_KEYS = ("title", "file", "filename", "path")
_INFO_PART = re.compile(r"""([\w-]+)=(?:"([^"]*)"|'([^']*)'|([^\s"'}]+))|([^\s{}]+)""")
_CONTAINERS = re.compile(r"^\s*(?:>\s*)*(?:[-*+]\s+|\d+[.)]\s+)?(?:#{1,6}\s+)?")
_LEAD = re.compile(
    r"^(?:(?:in|file|filename|path|create|created|update|updated|edit|edited|modify|modified|"
    r"replace|save|new|the|a|an|as|to|for|contents?|of)\b:?\s+)+",
    re.IGNORECASE,
)
_REMARK = re.compile(r"\s*\([^()]*\)\s*$")
_LINK = re.compile(r"^\[`?([^\]`]+)`?\]\(\1\)$")
_COMMENT = re.compile(r"^\s*(?:#|//|--|;+|%|/\*+|<!--|\(\*|REM\s)\s*(.*?)\s*(?:\*+/|-->|\*\))?\s*$")
_PATH = re.compile(r"""^(?![!=:])[^\s<>|"'*?`;,{}\\]+$""")
_SUFFIX = re.compile(r"\.([A-Za-z][A-Za-z0-9_]{0,11})$")
_PROSE = ("md", "markdown", "text", "txt", "rst")
_BARE_NAMES_WORDS = """
    Makefile Dockerfile Containerfile Jenkinsfile Vagrantfile Procfile Gemfile Rakefile Justfile
    justfile LICENSE README CHANGELOG CODEOWNERS .gitignore .gitattributes .dockerignore
    .editorconfig .prettierrc .eslintrc .env
"""
_SUFFIX_WORDS = """
    py pyi pyx js jsx ts tsx mjs cjs json jsonc json5 toml yaml yml md mdx rst txt html htm css
    scss sass less vue svelte astro go mod rs java kt kts c h cc cpp cxx hpp hh cs fs rb php
    swift scala sh bash zsh fish ps1 bat cmd sql lua r jl pl pm ex exs erl hs clj cljs dart zig
    nim ml mli f90 m mm xml ini cfg conf env lock gradle tf proto graphql ipynb csv tsv tex bib
    vim el asm s cmake mk svg diff patch service spec properties
"""
_BARE_NAMES = frozenset(_BARE_NAMES_WORDS.split())
_SUFFIXES = frozenset(_SUFFIX_WORDS.split())
_SEARCH_MARK = "<<<<<<< SEARCH"
NO_FILE = "/dev/null"


def looks_like_path(word: str) -> bool:
    """Whether a word, alone in its place, names a file; without a folder its suffix must be known.

    `os.path` and `and/or` are no paths, `app/x.py`, `x.py` and `Makefile` are.
    """
    if not _PATH.match(word) or "://" in word:
        return False
    folder, _, name = word.rpartition("/")
    if name in _BARE_NAMES:
        return True
    suffix = _SUFFIX.search(name)
    return suffix is not None and (bool(folder) or suffix[1].lower() in _SUFFIXES)


def from_info(info: str) -> tuple[str, str | None]:
    """Language and path of an info string: `python app/x.py`, `app/x.py`, `py title="a b.py"`."""
    words: list[str] = []
    named: str | None = None
    for key, double, single, bare, word in _INFO_PART.findall(info):
        if word:
            words.append(word)
        elif key.lower() in _KEYS:
            named = named or double or single or bare
    first = words[0] if words else ""
    language, colon, rest = first.partition(":")
    if colon and looks_like_path(rest):
        return language, named or rest
    if looks_like_path(first):
        suffix = _SUFFIX.search(first)
        return (suffix[1].lower() if suffix else ""), named or first
    return first, named or next((word for word in words[1:] if looks_like_path(word)), None)


def from_line(line: str) -> str | None:
    """The path a line of markdown consists of: `app/x.py:`, `**app/x.py**`, `File: app/x.py`."""
    text = _CONTAINERS.sub("", line, count=1).strip().strip("*: ：")
    text = _LEAD.sub("", text, count=1).strip("*: ：")
    link = _LINK.match(text)
    text = link[1] if link else _REMARK.sub("", text).strip("*:` ：\"'")
    if text.startswith("_") and text.endswith("_"):
        text = text.strip("_")
    return text if looks_like_path(text) else None


def from_code(language: str, code: str) -> str | None:
    """The path in the code itself: a first comment that is one, or the header of a diff."""
    first = code.split("\n", 1)[0]
    if _SEARCH_MARK in code:
        return None if first.startswith(_SEARCH_MARK) else from_line(first)
    if headers := diff_paths(code):
        return headers[0] if len(headers) == 1 else None
    comment = None if language.lower() in _PROSE else _COMMENT.match(first)
    return from_line(comment[1]) if comment and comment[1] else None


def diff_paths(code: str) -> list[str]:
    """The files a unified diff is about, each once, without a/ and b/; none if it is no diff."""
    lines = code.split("\n")
    found: list[str] = []
    for old, new, hunk in zip(lines, lines[1:], lines[2:], strict=False):
        if old.startswith("--- ") and new.startswith("+++ ") and hunk.startswith("@@"):
            path = header_path(old, new)
            if path not in found:
                found.append(path)
    return found


def header_path(old: str, new: str) -> str:
    """The path of a `--- old` and `+++ new` pair: the new one, or the old one of a deletion."""
    before, after = (line[4:].split("\t", 1)[0].strip() for line in (old, new))
    if before in (NO_FILE, after) or before.startswith("a/"):
        after = after.removeprefix("b/") if before != after else after
    if after == NO_FILE:
        return before.removeprefix("a/")
    return after
