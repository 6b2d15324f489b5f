"""The open documents: addresses, names, folders, and what a client says of what is not open."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsp.documents import Documents, Opened
from lsp.positions import Change
from lsp.uris import name_within, path_of


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///home/me/a%20b.py", "/home/me/a b.py"),
        ("file:///c%3A/Users/me/a.py", "c:/Users/me/a.py"),
        ("file:///C:/a.py", "C:/a.py"),
        ("file://wsl%24/Debian/home/a.py", "//wsl$/Debian/home/a.py"),
        ("file://localhost/a.py", "/a.py"),
        ("file:///%C3%A9%F0%9F%98%80.py", "/é😀.py"),
        ("vscode-notebook-cell:/p/n.ipynb#W2sZmlsZQ%3D%3D", "/p/n.ipynb"),
        ("untitled:/p/new.py", "/p/new.py"),
        ("untitled:Untitled-1", None),
        ("vscode-remote://ssh-remote%2Bhost/a.py", None),
        ("git:/p/a.py?ref=HEAD", None),
        ("file:///a%00b", None),
        ("file://[broken", None),
        ("", None),
    ],
)
def test_the_file_that_an_address_stands_for(uri: str, path: str | None) -> None:
    assert path_of(uri) == (None if path is None else Path(path))


def test_a_name_is_seen_from_the_innermost_folder() -> None:
    folders = (Path("/p"), Path("/p/inner"))
    assert name_within(Path("/p/inner/x/a.py"), folders) == "x/a.py"
    assert name_within(Path("/p/a.py"), folders) == "a.py"
    assert name_within(Path("/elsewhere/a.py"), folders) == "a.py"
    assert name_within(None, folders) == ""


def test_names_follow_the_folders() -> None:
    documents = Documents()
    documents.open(Opened(uri="file:///p/src/a.py"))
    documents.change_folders(["file:///p", "vscode-vfs://github/x"], [])
    assert documents.folders == (Path("/p"),)
    seen = documents.snapshot("file:///p/src/a.py")
    assert seen is not None
    assert seen.name == "src/a.py"
    documents.change_folders(["file:///p/src"], ["file:///p"])
    seen = documents.snapshot("file:///p/src/a.py")
    assert seen is not None
    assert seen.name == "a.py"


def test_what_is_not_open_can_be_changed_and_closed_without_harm() -> None:
    documents = Documents()
    assert documents.change("file:///a.py", 2, [Change(text="x")]) is None
    assert not documents.close("file:///a.py")
    assert documents.snapshot("file:///a.py") is None
    documents.forget_notebook("file:///n.ipynb")
    documents.splice_cells("file:///n.ipynb", 4, 2, ["file:///c"])


def test_a_document_opened_again_starts_anew() -> None:
    documents = Documents()
    documents.open(Opened(uri="file:///a.py", text="old", version=7))
    documents.open(Opened(uri="file:///b.py", text="b"))
    documents.open(Opened(uri="file:///a.py", text="new", version=1, language="go"))
    seen = documents.get("file:///a.py")
    assert seen is not None
    assert (seen.text, seen.version, seen.language) == ("new", 1, "go")
    assert documents.uris() == ("file:///b.py", "file:///a.py")


def test_a_change_without_a_version_counts_on() -> None:
    documents = Documents()
    documents.open(Opened(uri="file:///a.py", text="a", version=3))
    documents.change("file:///a.py", None, [Change(text="b")])
    documents.change("file:///a.py", None, [Change(text="c")])
    seen = documents.get("file:///a.py")
    assert seen is not None
    assert (seen.text, seen.version) == ("c", 5)


@pytest.mark.parametrize("text", ["", "\ufeff", "\ufeffx = 1\r\n", "no newline at the end"])
def test_texts_at_the_edge_are_kept_as_they_are(text: str) -> None:
    documents = Documents()
    documents.open(Opened(uri="untitled:1", text=text))
    seen = documents.snapshot("untitled:1", len(text))
    assert seen is not None
    assert (seen.text, seen.offset, seen.suffix, seen.path) == (text, len(text), "", None)


def test_a_mark_at_the_start_counts_as_a_character_of_the_first_line() -> None:
    documents = Documents()
    document = documents.open(Opened(uri="file:///a.py", text="\ufeffab\ncd"))
    assert document.line(0) == "\ufeffab"
    assert document.bounds(1) == (4, 6)
