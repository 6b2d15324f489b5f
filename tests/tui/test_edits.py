"""Edits are exact or refused: content, placing, containment, encodings, writing and undoing."""

from __future__ import annotations

import difflib
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui import atomic_file, diff_text
from tui.code_blocks import CodeBlock, code_blocks
from tui.edits import (
    MAX_BYTES,
    Edit,
    EditRefused,
    apply_edit,
    digest_of,
    plan_edit,
    undo_edit,
)
from tui.file_actions import edit_for
from tui.text_file import split

ROOT = Path(__file__).parents[2]


def block_of(code: str, language: str = "python", *, closed: bool = True) -> CodeBlock:
    return CodeBlock(
        index=0, language=language, code=code, info=language, target=None, line=1, closed=closed
    )


def diff_of(old: str, new: str, name: str = "x.py", *, around: int = 3) -> CodeBlock:
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"a/{name}", f"b/{name}", n=around, lineterm=""
    )
    return block_of("".join(line + "\n" for line in lines), "diff")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def result_of(root: Path, content: bytes, block: CodeBlock, name: str = "x.py") -> bytes:
    """What applying the block makes of the content; undoing it must bring the content back."""
    path = root / name
    path.write_bytes(content)
    undo = apply_edit(plan_edit(root, name, block))
    after = path.read_bytes()
    undo_edit(undo)
    assert path.read_bytes() == content
    return after


def refusal(root: Path, target: str, block: CodeBlock) -> EditRefused:
    before = snapshot(root)
    with pytest.raises(EditRefused) as caught:
        plan_edit(root, target, block)
    assert snapshot(root) == before
    assert caught.value.message
    assert caught.value.hint.endswith((".", "!"))
    assert caught.value.exit_code == 2
    return caught.value


def snapshot(root: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(root)): (
            f"-> {path.readlink()}" if path.is_symlink() else path.read_bytes()
        )
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


# ---- whole files


def test_a_new_file_is_the_code_and_undoing_leaves_no_trace(root: Path) -> None:
    edit = plan_edit(root, "app/new/x.py", block_of("a = 1\r\nb\0"))
    assert (edit.kind, edit.before, edit.digest) == ("create", None, "")
    assert list(root.iterdir()) == []
    undo = apply_edit(edit)
    assert (root / "app/new/x.py").read_bytes() == b"a = 1\r\nb\0"
    undo_edit(undo)
    assert list(root.iterdir()) == []


def test_a_new_file_has_the_users_mask(root: Path) -> None:
    old = os.umask(0o027)
    try:
        apply_edit(plan_edit(root, "x.py", block_of("a\n")))
    finally:
        os.umask(old)
    assert stat.S_IMODE((root / "x.py").stat().st_mode) == 0o640


def test_undoing_keeps_a_folder_that_is_in_use(root: Path) -> None:
    undo = apply_edit(plan_edit(root, "app/x.py", block_of("a\n")))
    (root / "app/y.py").write_bytes(b"")
    undo_edit(undo)
    assert snapshot(root) == {"app/y.py": b""}


@pytest.mark.parametrize(
    ("content", "code", "after"),
    [
        (b"a\nb\n", "c\n", b"c\n"),
        (b"a\r\nb\r\n", "a\nc\nb\n", b"a\r\nc\r\nb\r\n"),
        (b"a\nb\n", "a\r\nc\r\n", b"a\nc\n"),
        (b"a\rb\r", "a\nc\n", b"a\rc\r"),
        (b"a\nb", "a\nc\n", b"a\nc"),
        (b"", "a\n", b"a\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nnew\nc\n", b"a\r\nb\nnew\nc\r\n"),
        (b"a\r\nb\n", "b\n", b"b\n"),
        (b"a\r\nb\nc", "a\nB\nc\n", b"a\r\nB\nc"),
        (b"\xef\xbb\xbfa\n", "b\n", b"\xef\xbb\xbfb\n"),
        ("é\n".encode("latin-1"), "é = ü\n", "é = ü\n".encode("latin-1")),
        (
            b"\xff\xfe" + "a\r\n".encode("utf-16-le"),
            "ü\n",
            b"\xff\xfe" + "ü\r\n".encode("utf-16-le"),
        ),
        (b"\xfe\xff" + "a\n".encode("utf-16-be"), "😀\n", b"\xfe\xff" + "😀\n".encode("utf-16-be")),
        (b"a\n", "", b""),
    ],
)
def test_line_ends_mark_and_encoding_stay(
    root: Path, content: bytes, code: str, after: bytes
) -> None:
    assert result_of(root, content, block_of(code)) == after


def test_what_is_so_already_is_refused(root: Path) -> None:
    (root / "x.py").write_bytes(b"a\r\n")
    assert refusal(root, "x.py", block_of("a\n")).code == "edit_nothing"


@pytest.mark.parametrize(
    "line",
    [
        "# ... existing code ...",
        "// rest of the file remains unchanged",
        "    # … the same",
        "/* existing code */",
        "# (rest of your code here)",
        "<!-- ... -->",
    ],
)
def test_a_block_that_leaves_parts_out_is_no_whole_file(root: Path, line: str) -> None:
    (root / "x.py").write_bytes(b"a\nb\n")
    assert refusal(root, "x.py", block_of(f"c\n{line}\n")).code == "edit_left_out"
    (root / "x.py").write_bytes(f"a\n{line}\n".encode())
    assert plan_edit(root, "x.py", block_of(f"c\n{line}\n")).kind == "replace"


@pytest.mark.parametrize(
    "line",
    ["# parse the rest of the line", "def f(): ...", "# existing code paths must work", "..."],
)
def test_ordinary_lines_are_not_taken_for_gaps(root: Path, line: str) -> None:
    assert result_of(root, b"a\n", block_of(f"{line}\n")) == f"{line}\n".encode()


def test_a_block_that_was_cut_off_is_refused(root: Path) -> None:
    (block,) = code_blocks("```python x.py\na = 1\n")
    assert refusal(root, "x.py", block).code == "edit_cut_off"
    assert block.target == "x.py"


# ---- diffs and SEARCH/REPLACE


def test_line_numbers_and_counts_of_a_diff_do_not_matter(root: Path) -> None:
    code = "--- a/x.py\n+++ b/x.py\n@@ -90,1 +7,99 @@ def f():\n a\n-b\n+B\n+BB\n c\n"
    assert result_of(root, b"0\na\nb\nc\n", block_of(code, "diff")) == b"0\na\nB\nBB\nc\n"


@pytest.mark.parametrize(
    ("content", "body", "after"),
    [
        (b"a\nb\nc\n", " a\n-b\n c\n", b"a\nc\n"),
        (b"a\n\nc\n", "@@ -1,3 +1,3 @@\n a\n\n-c\n+d\n", b"a\n\nd\n"),
        (b"a\nb\n", "@@ @@\n-a\n+A\n\n@@ @@\n-b\n+B\n\n", b"A\nB\n"),
        (b"a\nb\nc\n", "@@ @@\n-c\n+C\n@@ @@\n-a\n+A\n", b"A\nb\nC\n"),
        (b"a\r\nb\r\n", "@@ @@\n a\n+n\n b\n", b"a\r\nn\r\nb\r\n"),
        (b"a\nb", "@@ @@\n-b\n+c\n+d\n", b"a\nc\nd"),
        (b"a\nb", "@@ @@\n-b\n\\ No newline at end of file\n+b\n", b"a\nb\n"),
        (b"a\nb\n", "@@ @@\n-b\n+c\n\\ No newline at end of file\n", b"a\nc"),
        (b"a\nb", "@@ @@\n-a\n+c\n b\n\\ No newline at end of file\n", b"c\nb"),
        (b"", "@@ -0,0 +1 @@\n+a\n", b"a\n"),
        (b"a\n", "@@ -1 +0,0 @@\n-a\n", b""),
        (b"-- x\nb\n", "@@ @@\n--- x\n+++ y\n b\n", b"++ y\nb\n"),
        (b"  a\n", "@@ @@\n-  a\n+\ta \n", b"\ta \n"),
    ],
)
def test_a_diff_changes_just_its_lines(root: Path, content: bytes, body: str, after: bytes) -> None:
    assert result_of(root, content, block_of(body, "diff")) == after


@pytest.mark.parametrize(
    ("content", "body", "code"),
    [
        (b"a\nb\na\nb\n", "@@ -3,2 +3,2 @@\n a\n-b\n+c\n", "ambiguous"),
        (b"a\na\na\n", "@@ @@\n a\n-a\n", "ambiguous"),
        (b"a\nb\n", "@@ @@\n a\n-B\n+c\n", "not_found"),
        (b"a \nb\n", "@@ @@\n-a\n+c\n", "not_found"),
        (b"\ta\n", "@@ @@\n-    a\n+c\n", "not_found"),
        (b"a\nb\n", "@@ @@\n+c\n", "no_place"),
        (b"a\nb\nc\n", "@@ @@\n a\n-b\n@@ @@\n-b\n c\n", "overlap"),
        (b"a\nb\n", "@@ @@\n-a\n+c\nb\n", "malformed"),
        (b"a\nb\n", "@@ @@\n-a\nindex = 3\n+c\n", "malformed"),
        (b"a\nb\n", "@@ @@\n-a\n+c\n...\n", "malformed"),
        (b"a\nb\n", "@@@ -1 -1 +1 @@@\n--a\n++c\n", "malformed"),
        (b"a\nb\n", "diff --git a/x.py b/x.py\n", "malformed"),
        (b"a\nb\n", "rename from x.py\nrename to y.py\n@@ @@\n-a\n+c\n", "unsupported"),
        (b"a\nb\n", "old mode 100644\nnew mode 100755\n@@ @@\n-a\n+c\n", "unsupported"),
        (b"a\nb\n", "new file mode 100755\n@@ @@\n-a\n+c\n", "unsupported"),
        (b"a\nb\n", "--- a/x.py\n+++ /dev/null\n@@ @@\n-a\n", "deletes"),
        (b"a\nb\n", "--- /dev/null\n+++ b/x.py\n@@ @@\n+a\n", "exists"),
        (b"a\nb\n", "--- a/y.py\n+++ b/y.py\n@@ @@\n-a\n+c\n", "other_file"),
        (b"a\nb\n", "@@ @@\n-a\n\\ No newline at end of file\n+c\n", "not_found"),
        (b"a\nb\n", "@@ @@\n-b\n\\ No newline at end of file\n+c\n", "not_found"),
        (b"a\nb\n", "@@ @@\n-a\n+c\n\\ No newline at end of file\n", "not_found"),
        (b"a\nb\n", "@@ @@\n-a\n+b\n\\ No newline at end of file\n+c\n", "malformed"),
        (b"a\nb\n", "@@ @@\n a\n", "nothing"),
        (b"a\nb\n", "", "malformed"),
    ],
)
def test_what_does_not_fit_exactly_is_refused(
    root: Path, content: bytes, body: str, code: str
) -> None:
    (root / "x.py").write_bytes(content)
    assert refusal(root, "x.py", block_of(body, "diff")).code == f"edit_{code}"


def test_a_refusal_says_where_the_file_differs(root: Path) -> None:
    (root / "x.py").write_bytes(b"a\nb\nc\n")
    error = refusal(root, "x.py", block_of("@@ @@\n a\n b\n-d\x1b[2J\n", "diff"))
    assert "line 3 reads “c”, not “d␛[2J”" in error.message


def test_a_diff_creates_a_file(root: Path) -> None:
    code = (
        "diff --git a/p/x.py b/p/x.py\nnew file mode 100644\nindex 0000000..1111111\n"
        "--- /dev/null\n+++ b/p/x.py\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    )
    edit = plan_edit(root, "", block_of(code, "diff"))
    assert edit.kind == "create"
    apply_edit(edit)
    assert snapshot(root) == {"p/x.py": b"a\nb\n"}
    assert refusal(root, "q.py", block_of("@@ @@\n-a\n+b\n", "diff")).code == "edit_no_file"


def test_a_diff_of_several_files_is_refused(root: Path) -> None:
    (root / "x.py").write_bytes(b"a\n")
    (root / "y.py").write_bytes(b"a\n")
    code = "".join(f"--- a/{n}\n+++ b/{n}\n@@ -1 +1 @@\n-a\n+b\n" for n in ("x.py", "y.py"))
    error = refusal(root, "x.py", block_of(code, "diff"))
    assert error.code == "edit_several_files"
    assert "x.py, y.py" in error.message
    git = "diff --git a/e b/e\nnew file mode 100644\n"
    one = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ @@\n-a\n+b\n"
    assert refusal(root, "x.py", block_of(one + git, "diff")).code == "edit_malformed"
    assert refusal(root, "x.py", block_of(git + one, "diff")).code == "edit_malformed"


def test_a_file_of_diffs_is_a_file(root: Path) -> None:
    code = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n"
    apply_edit(plan_edit(root, "fix.patch", block_of(code, "diff")))
    assert snapshot(root) == {"fix.patch": code.encode()}


def search(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    ("content", "code", "after"),
    [
        (b"a\nb\nc\n", search("b\n", "B\nB\n"), b"a\nB\nB\nc\n"),
        (b"a\r\nb\r\n", search("b\n", "c\n"), b"a\r\nc\r\n"),
        (b"a\nb\n", search("b\n", ""), b"a\n"),
        (b"a\nb\n", "x.py\n" + search("a\n", "A\n") + "\n" + search("b\n", "B\n"), b"A\nB\n"),
        (b"a\nb", search("b\n", "c\n"), b"a\nc"),
        (b"", search("", "a\n"), b"a\n"),
    ],
)
def test_search_and_replace(root: Path, content: bytes, code: str, after: bytes) -> None:
    assert result_of(root, content, block_of(code)) == after


@pytest.mark.parametrize(
    ("content", "code", "refused"),
    [
        (b"a\na\n", search("a\n", "b\n"), "ambiguous"),
        (b"ab\n", search("a\n", "b\n"), "not_found"),
        (b" a\n", search("a\n", "b\n"), "not_found"),
        (b"a\n", search("", "b\n"), "no_place"),
        (b"a\n", "<<<<<<< SEARCH\na\n=======\nb\n", "malformed"),
        (b"a\n", "<<<<<<< SEARCH\na\n=======\nb\n=======\nc\n>>>>>>> REPLACE\n", "malformed"),
        (b"a\n", "Now:\n" + search("a\n", "b\n"), "malformed"),
        (b"a\n", "y.py\n" + search("a\n", "b\n"), "other_file"),
        (b"a\n", search("a\n", "b\n") + "y.py\n" + search("c\n", "d\n"), "other_file"),
        (b"a\n", "x.py\n" + search("a\n", "b\n") + "y.py\n" + search("", "d\n"), "several_files"),
    ],
)
def test_search_and_replace_that_does_not_fit_is_refused(
    root: Path, content: bytes, code: str, refused: str
) -> None:
    (root / "x.py").write_bytes(content)
    assert refusal(root, "x.py", block_of(code)).code == f"edit_{refused}"


# ---- properties

line_text = st.text(st.sampled_from("ab é\t日😀"), max_size=3)
any_lines = st.lists(st.tuples(line_text, st.sampled_from(["\n", "\r\n"])), max_size=12)
encodings = st.sampled_from(["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "latin-1"])
MARKS = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}


def encoded(text: str, encoding: str) -> bytes:
    if encoding == "latin-1":
        text = text.replace("日", "ñ").replace("😀", "ü")
    return MARKS.get(encoding, b"") + text.encode(encoding)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path).resolve()


def planned(folder: Path, block: CodeBlock) -> Edit | str:
    """The edit of x.py, or the code of its refusal."""
    try:
        return plan_edit(folder, "x.py", block)
    except EditRefused as error:
        return error.code


@settings(deadline=None, max_examples=100)
@given(lines=any_lines, open_end=st.booleans(), encoding=encodings, code=any_lines)
def test_applying_and_undoing_restores_the_bytes(
    folder: Path,
    lines: list[tuple[str, str]],
    open_end: bool,
    encoding: str,
    code: list[tuple[str, str]],
) -> None:
    text = "".join(text + end for text, end in lines)
    content = encoded(text.rstrip("\r\n") if open_end else text, encoding)
    path = folder / "x.py"
    path.write_bytes(content)
    wanted = [text for text, _ in code]
    edit = planned(folder, block_of("".join(text + end for text, end in code)))
    if isinstance(edit, str):
        assert edit in ("edit_nothing", "edit_encoding")
        return
    undo = apply_edit(edit)
    after = path.read_bytes()
    assert after == edit.after != content
    mark = MARKS.get(encoding, b"")
    assert after.startswith(mark)
    # What is all ASCII was taken for UTF-8, as it would be by anyone.
    shown = after[len(mark) :].decode("utf-8" if content.isascii() else encoding)
    assert shown.replace("\r\n", "\n").split("\n")[: len(wanted)] == wanted or not wanted
    undo_edit(undo)
    assert path.read_bytes() == content


@settings(deadline=None, max_examples=100)
@given(
    old=st.lists(st.sampled_from("abcdefgh"), max_size=15),
    new=st.lists(st.sampled_from("abcdefgh"), max_size=15),
    end=st.sampled_from(["\n", "\r\n"]),
    around=st.integers(0, 4),
    encoding=encodings,
)
def test_a_diff_gives_the_text_difflib_made_it_from(
    folder: Path, old: list[str], new: list[str], end: str, around: int, encoding: str
) -> None:
    before, after = ("".join(line + "\n" for line in side) for side in (old, new))
    path = folder / "x.py"
    path.write_bytes(encoded(before.replace("\n", end), encoding))
    edit = planned(folder, diff_of(before, after, around=around))
    if isinstance(edit, str):
        may_be = ("edit_ambiguous", "edit_no_place") if old != new else ("edit_malformed",)
        assert edit in may_be
        return
    apply_edit(edit)
    # An empty file does not show how it ends its lines.
    assert path.read_bytes() == encoded(after.replace("\n", end if old else "\n"), encoding)


@settings(deadline=None, max_examples=150)
@given(
    old=st.lists(st.sampled_from("abcdefgh"), max_size=30),
    new=st.lists(st.sampled_from("abcdefgh"), max_size=30),
    opened=st.tuples(st.booleans(), st.booleans()),
)
def test_the_shown_diff_applies_to_what_it_was_made_from(
    folder: Path, old: list[str], new: list[str], opened: tuple[bool, bool]
) -> None:
    """The preview's own diff is a true one: `git`-like marks, right numbers."""
    before, after = (
        "\n".join(side) + "\n" * bool(side and not is_open)
        for side, is_open in zip((old, new), opened, strict=True)
    )
    diff = diff_text.write("x.py", split(before), split(after))
    result: list[str] = []
    at = 0
    for row in diff_text.rows(diff):
        if row.sign in (" ", "-"):
            assert row.old is not None
            result += old[at : row.old - 1]
            assert old[row.old - 1] == row.text
            at = row.old
        if row.sign in (" ", "+"):
            assert row.new is not None
            # A hunk may begin with an insertion: what stands before it is not among its rows.
            ahead = row.new - 1 - len(result)
            result += old[at : at + ahead]
            at += ahead
            result.append(row.text)
            assert len(result) == row.new
    assert result + old[at:] == new


# ---- containment


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("../x.py", "outside"),
        ("a/../x.py", "outside"),
        ("/etc/passwd", "outside"),
        ("~/x.py", "outside"),
        ("C:/x.py", "outside"),
        ("a\\x.py", "path"),
        ("", "path"),
        (" x.py", "path"),
        ("x\n.py", "path"),
        ("x\0.py", "path"),
        ("x\u202e.py", "path"),
        ("x" * 300, "path"),
        (".", "folder"),
        ("new/", "folder"),
        ("folder", "folder"),
        ("file/x.py", "path"),
        ("pipe", "special"),
        ("link.py", "link"),
        ("inside.py", "link"),
        ("dangling.py", "link"),
        ("linked/x.py", "link"),
        (".git/config", "control_folder"),
        ("sub/.GIT/hooks/x.py", "control_folder"),
        (".git", "control_folder"),
        (".env", "secret"),
        ("deploy/.env.local", "secret"),
        ("id_rsa", "secret"),
        ("certs/server.pem", "secret"),
        (".ssh/config", "secret"),
    ],
)
def test_only_plain_files_inside_the_folder_are_edited(
    root: Path, tmp_path: Path, target: str, code: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.py").write_bytes(b"out\n")
    (root / "folder").mkdir()
    (root / "file").write_bytes(b"a\n")
    (root / "link.py").symlink_to(outside / "x.py")
    (root / "inside.py").symlink_to("file")
    (root / "dangling.py").symlink_to(outside / "absent.py")
    (root / "linked").symlink_to(outside)
    os.mkfifo(root / "pipe")
    assert refusal(root, target, block_of("a = 1\n")).code == f"edit_{code}"
    assert snapshot(outside) == {"x.py": b"out\n"}


def test_the_folder_itself_may_be_reached_by_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(root)
    apply_edit(plan_edit(tmp_path / "way", "x.py", block_of("a\n")))
    apply_edit(plan_edit(root, str(root / "y.py"), block_of("a\n")))
    apply_edit(plan_edit(root, ".env.example", block_of("a\n")))
    assert sorted(snapshot(root)) == [".env.example", "x.py", "y.py"]


def test_a_link_that_comes_between_plan_and_apply_is_refused(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "app").mkdir()
    for name in ("app/x.py", "app/new.py"):
        if name == "app/x.py":
            (root / name).write_bytes(b"a\n")
            (outside / "x.py").write_bytes(b"a\n")
    edits = [plan_edit(root, name, block_of("b\n")) for name in ("app/x.py", "app/new.py")]
    (root / "app").rename(root / "old")
    (root / "app").symlink_to(outside)
    for edit in edits:
        with pytest.raises(EditRefused) as caught:
            apply_edit(edit)
        assert caught.value.code == "edit_link"
    assert snapshot(outside) == {"x.py": b"a\n"}


# ---- kinds of content, permissions, changes in between


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"a\0b", "binary"),
        (b"\x89PNG\r\n\x1a\n\0\0", "binary"),
        (b"\x80abc\n", "encoding"),
        ("日本".encode("shift_jis"), "encoding"),
        (b"\xff\xfea", "encoding"),
        (b"\xff\xfe\x00\xd8", "encoding"),
        (b"\xef\xbb\xbf\xff\n", "encoding"),
        pytest.param(b"a" * (MAX_BYTES + 1), "too_large", id="too_large"),
    ],
)
def test_what_is_no_known_text_is_refused(root: Path, content: bytes, code: str) -> None:
    (root / "x.py").write_bytes(content)
    assert refusal(root, "x.py", block_of("a\n")).code == f"edit_{code}"


def test_a_character_the_encoding_has_not_is_refused(root: Path) -> None:
    (root / "x.py").write_bytes("é\n".encode("latin-1"))
    error = refusal(root, "x.py", block_of("€\n"))
    assert error.code == "edit_encoding"
    assert "U+20AC" in error.message


@pytest.mark.parametrize("mode", [0o444, 0o555])
def test_a_read_only_file_is_refused(root: Path, mode: int) -> None:
    (root / "x.py").write_bytes(b"a\n")
    (root / "x.py").chmod(mode)
    assert refusal(root, "x.py", block_of("b\n")).code == "edit_read_only"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o4750])
def test_the_mode_stays_and_is_restored(root: Path, mode: int) -> None:
    path = root / "x.py"
    path.write_bytes(b"a\n")
    path.chmod(mode)
    undo = apply_edit(plan_edit(root, "x.py", block_of("b\n")))
    assert stat.S_IMODE(path.stat().st_mode) == mode
    path.chmod(0o640)
    undo_edit(undo)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_file_that_changed_since_it_was_read_is_refused(root: Path) -> None:
    path = root / "x.py"
    path.write_bytes(b"a\n")
    read = digest_of(b"a\n")
    assert plan_edit(root, "x.py", block_of("b\n"), read_digest=read).after == b"b\n"
    path.write_bytes(b"a \n")
    with pytest.raises(EditRefused, match="changed since it was read"):
        plan_edit(root, "x.py", block_of("b\n"), read_digest=read)
    path.unlink()
    with pytest.raises(EditRefused, match="changed since it was read"):
        plan_edit(root, "x.py", block_of("b\n"), read_digest=read)


def changed(root: Path, edit: Edit) -> str:
    before = snapshot(root)
    with pytest.raises(EditRefused) as caught:
        apply_edit(edit)
    assert snapshot(root) == before
    return caught.value.code


def test_a_file_that_changed_since_the_preview_is_left_alone(root: Path) -> None:
    (root / "x.py").write_bytes(b"a\n")
    replace = plan_edit(root, "x.py", block_of("b\n"))
    create = plan_edit(root, "p/y.py", block_of("b\n"))
    (root / "x.py").write_bytes(b"a\n\n")
    (root / "p").mkdir()
    (root / "p/y.py").write_bytes(b"mine\n")
    assert changed(root, replace) == changed(root, create) == "edit_changed"
    (root / "x.py").unlink()
    assert changed(root, replace) == "edit_changed"


def test_undoing_refuses_what_would_lose_a_later_change(root: Path) -> None:
    (root / "x.py").write_bytes(b"a\n")
    undos = [
        apply_edit(plan_edit(root, "x.py", block_of("b\n"))),
        apply_edit(plan_edit(root, "y.py", block_of("b\n"))),
    ]
    for name in ("x.py", "y.py"):
        (root / name).write_bytes(b"later\n")
    for undo in undos:
        with pytest.raises(EditRefused, match="changed since the edit"):
            undo_edit(undo)
    assert snapshot(root) == {"x.py": b"later\n", "y.py": b"later\n"}
    (root / "y.py").unlink()
    with pytest.raises(EditRefused, match="changed since the edit"):
        undo_edit(undos[1])


def test_what_can_not_be_written_leaves_nothing_behind(root: Path) -> None:
    edit = plan_edit(root, "p/q/" + "n" * 250, block_of("b\n"))
    too_long = edit.path.with_name("n" * 256)
    with pytest.raises(EditRefused):
        apply_edit(msgspec.structs.replace(edit, path=too_long))
    assert list(root.iterdir()) == []


def test_who_reads_the_file_meanwhile_reads_one_version(root: Path) -> None:
    (root / "x.py").write_bytes(b"old\n")
    with (root / "x.py").open("rb") as file:
        undo = apply_edit(plan_edit(root, "x.py", block_of("new\n")))
        assert file.read() == b"old\n"
    with (root / "x.py").open("rb") as file:
        undo_edit(undo)
        assert file.read() == b"new\n"


def test_making_a_file_never_takes_the_place_of_another(root: Path) -> None:
    (root / "x.py").write_bytes(b"mine\n")
    with pytest.raises(FileExistsError):
        atomic_file.create(root / "x.py", b"theirs\n")
    assert snapshot(root) == {"x.py": b"mine\n"}


def test_leftovers_of_killed_writes_are_removed_when_old(root: Path) -> None:
    stale, fresh = root / ".sspec-assist-1-ab.tmp", root / ".sspec-assist-2-cd.tmp"
    for path in (stale, fresh):
        path.write_bytes(b"half")
    os.utime(stale, (time.time() - 3600,) * 2)
    apply_edit(plan_edit(root, "x.py", block_of("a\n")))
    assert sorted(snapshot(root)) == [".sspec-assist-2-cd.tmp", "x.py"]


WRITER = """
import os, sys
from pathlib import Path
from tui.code_blocks import CodeBlock
from tui.edits import apply_edit, plan_edit

root = Path(sys.argv[1])
edits = []
for code in ("new" * 1_300_000, "old" * 1_000_000):
    block = CodeBlock(index=0, language="", code=code, info="", target=None, line=1)
    edits.append(plan_edit(root, "x.txt", block))
    apply_edit(edits[-1])
while sys.stdin.readline():
    writer = os.fork()
    while writer == 0:
        for edit in edits:
            apply_edit(edit)
    print(writer, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]), flush=True)
"""


def test_killing_a_write_leaves_the_old_or_the_new_content(root: Path) -> None:
    path = root / "x.txt"
    old, new = b"old" * 1_000_000, b"new" * 1_300_000
    path.write_bytes(old)
    seen = set()
    delays = random.Random(7)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        for _ in range(20):
            path.write_bytes(old)
            print("go", file=parent.stdin, flush=True)
            writer = int(parent.stdout.readline())
            time.sleep(delays.uniform(0.0, 0.2))
            os.kill(writer, signal.SIGKILL)
            assert int(parent.stdout.readline()) == -signal.SIGKILL
            assert path.read_bytes() in (old, new)
            seen.add(path.read_bytes())
        parent.stdin.close()
    assert parent.returncode == 0
    assert seen == {old, new}, "the kills came at no random moments"
    rest = {name.name for name in root.iterdir()} - {"x.txt"}
    assert all(name.startswith(".sspec-assist-") for name in rest)


@pytest.mark.parametrize("target", ["x.py", "./x.py", "sub/../x.py", "{root}/x.py", ""])
def test_however_a_file_is_named_a_change_since_it_was_attached_is_seen(
    root: Path, target: str
) -> None:
    (root / "x.py").write_bytes(b"a\nb\n")
    digests = {"x.py": digest_of(b"a\nb\n")}
    (root / "x.py").write_bytes(b"a\nb\nmine\n")
    block = block_of("c\n") if target else diff_of("a\nb\n", "c\nb\n", around=0)
    with pytest.raises(EditRefused) as refused:
        edit_for(root, target.format(root=root), block, digests)
    assert refused.value.code in ("edit_changed", "edit_outside")
