"""What `@path` means and what may be read for it: containment, secrets, sizes, encodings."""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.project_files.secrets import secret_reason
from tests.opened import watching
from tui.attached_files import KeptFiles
from tui.attachments import MAX_BYTES, MAX_FILE_BYTES, MAX_FILES, Gathered, gather
from tui.mentions import Wanted, as_mention, mentions

SECRETS = (
    ".env",
    ".ENV",
    ".env.production",
    "deploy/prod.env",
    "server.pem",
    "id_rsa",
    "keys/id_ed25519",
    "credentials",
    "credentials.json",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".aws/config",
    ".ssh/known_hosts",
    ".git/config",
    ".docker/config.json",
    ".config/gcloud/access_tokens.db",
    ".main.py.swp",
    "main.py~",
    ".bash_history",
    "terraform.tfstate",
)
HARMLESS = (".env.example", "secrets.py", "environment.py", "id_rsa.pub", ".docker/Dockerfile")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write(root: Path, name: str, text: str | bytes = "text\n") -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def texts(gathered: Gathered) -> dict[str, str]:
    return {one.path: one.text for one in gathered.snippets}


def codes(gathered: Gathered) -> list[str]:
    return [one.code for one in gathered.refused]


# The notation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@a.py", [Wanted(path="a.py")]),
        ("see @a.py and (@b/c.py)", [Wanted(path="a.py"), Wanted(path="b/c.py")]),
        ('"@"no"', []),
        ('@"my file.py"', [Wanted(path="my file.py")]),
        ('@"my file.py":3-4 x', [Wanted(path="my file.py", lines=(3, 4))]),
        ("@a.py:10", [Wanted(path="a.py", lines=(10, 10))]),
        ("@a.py:10-40,", [Wanted(path="a.py", lines=(10, 40))]),
        ("@a.py.", [Wanted(path="a.py")]),
        ("me@example.org", []),
        ("`@a.py`", []),
        ("@", []),
        ("@@a", []),
        ("@dir/x.py:", [Wanted(path="dir/x.py")]),
        ("@日本/語.py、", [Wanted(path="日本/語.py、")]),
    ],
)
def test_a_mention_is_read(text: str, expected: list[Wanted]) -> None:
    assert [mention.readings[-1] for mention in mentions(text)] == expected


def test_a_mention_knows_where_it_stands() -> None:
    (one, two) = mentions('x @a.py, @"b c":1')
    assert ('x @a.py, @"b c":1'[one.start : one.end], one.written) == ("@a.py,", "@a.py,")
    assert two.written == '@"b c":1'


@given(st.text(st.characters(exclude_characters='"\n', exclude_categories=["C"]), min_size=1))
def test_a_path_is_written_so_that_it_is_read_back(path: str) -> None:
    (mention,) = mentions(f"see {as_mention(path)} there")
    assert mention.readings == (Wanted(path=path),)


# What goes along


def test_files_are_read_in_the_order_they_are_named(root: Path) -> None:
    write(root, "b.py", "b = 1\n")
    write(root, "a.py", "a = 1\n")
    gathered = gather("compare @b.py with @a.py, then @b.py again", root)
    assert list(texts(gathered).items()) == [("b.py", "b = 1\n"), ("a.py", "a = 1\n")]
    assert (gathered.refused, gathered.unknown) == ((), ())


def test_the_digest_is_that_of_the_bytes_and_line_ends_are_the_model_s(root: Path) -> None:
    file = write(root, "a.py", "a\r\nb\r\n")
    (one,) = gather("@a.py:2", root).attached
    assert one.snippet.text == "b\n"
    assert one.digest == hashlib.sha256(file.read_bytes()).hexdigest()


def test_lines_are_cut_out(root: Path) -> None:
    write(root, "a.py", "".join(f"{n}\n" for n in range(1, 101)))
    assert texts(gather("@a.py:10-12", root)) == {"a.py:10-12": "10\n11\n12\n"}
    assert texts(gather("@a.py:7", root)) == {"a.py:7-7": "7\n"}
    assert texts(gather("@a.py:99-500", root)) == {"a.py:99-100": "99\n100\n"}


def test_form_feeds_do_not_shift_lines(root: Path) -> None:
    write(root, "a.py", "1\f1\n2\u20282\n3\n")
    assert texts(gather("@a.py:3", root)) == {"a.py:3-3": "3\n"}


@pytest.mark.parametrize("lines", ["0", "0-3", "5-4", "4", "9-10"])
def test_lines_that_are_not_there_are_refused(root: Path, lines: str) -> None:
    write(root, "a.py", "1\n2\n3\n")
    gathered = gather(f"@a.py:{lines}", root)
    assert codes(gathered) == ["no_such_lines"]
    assert "it has 3" in gathered.refused[0].message


def test_a_file_whose_name_looks_like_lines_wins(root: Path) -> None:
    write(root, "a.py:10", "odd\n")
    write(root, "a.py", "plain\n")
    assert texts(gather("@a.py:10", root)) == {"a.py:10": "odd\n"}


def test_punctuation_belongs_to_the_name_only_if_there_is_such_a_file(root: Path) -> None:
    write(root, "what?", "odd\n")
    write(root, "a.py", "plain\n")
    assert set(texts(gather("@what? or @a.py?", root))) == {"what?", "a.py"}


def test_an_absolute_path_inside_is_the_same_file(root: Path) -> None:
    write(root, "sub/a.py", "a\n")
    assert set(texts(gather(f"@{root}/sub/a.py @./sub/../sub/a.py", root))) == {"sub/a.py"}


def test_a_name_that_is_no_file_is_words(root: Path) -> None:
    gathered = gather("@dataclass, @gone.py and @no/where", root)
    assert gathered.unknown == ("@gone.py", "@no/where")
    assert (gathered.attached, gathered.refused) == ((), ())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("é\n".encode(), "é\n"),
        (codecs.BOM_UTF8 + "é\n".encode(), "é\n"),
        ("é\n".encode("utf-16"), "é\n"),
        (codecs.BOM_UTF16_BE + "é\n".encode("utf-16-be"), "é\n"),
        (b"", ""),
    ],
)
def test_an_encoding_that_is_told_is_read(root: Path, data: bytes, text: str) -> None:
    write(root, "a.txt", data)
    assert texts(gather("@a.txt", root)) == {"a.txt": text}


# What is refused


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("é".encode("latin-1"), "not_utf8"),
        ("é日".encode("shift-jis", "replace") + b"\x81", "not_utf8"),
        (b"\x7fELF\x00\x01", "binary_file"),
        (b"\xff\xfe\x00\x00a\x00\x00\x00", "binary_file"),
        (b"text\0text", "binary_file"),
        (b"\x89PNG\r\n\x1a\n\x00", "binary_file"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nx", "secret_file"),
    ],
)
def test_what_is_no_text_is_refused(root: Path, data: bytes, code: str) -> None:
    write(root, "a.txt", data)
    gathered = gather("look at @a.txt", root)
    assert codes(gathered) == [code]
    assert "a.txt" in gathered.refused[0].message
    assert gathered.refused[0].hint
    assert gathered.snippets == ()


def test_a_large_file_goes_along_in_part_only(root: Path) -> None:
    write(root, "log.txt", "0123456789abcde\n" * (MAX_BYTES // 16 + 1))
    whole = gather("@log.txt", root)
    assert codes(whole) == ["large_file"]
    assert f"{MAX_BYTES + 16:,} bytes" in whole.refused[0].message
    assert "@log.txt:1-200" in whole.refused[0].hint
    assert codes(gather("@log.txt:1-20", root)) == []
    assert codes(gather("@log.txt:1-99999", root)) == ["large_file"]


def test_of_a_huge_file_not_even_a_part_goes_along(root: Path) -> None:
    with write(root, "log.txt").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    gathered = gather("@log.txt:1-2", root)
    assert codes(gathered) == ["large_file"]
    assert ":1-200" not in gathered.refused[0].hint


def test_a_folder_and_a_pipe_are_refused_without_waiting(root: Path) -> None:
    (root / "src").mkdir()
    os.mkfifo(root / "pipe.txt")
    with watching() as opened:
        assert codes(gather("@src/ @pipe.txt", root)) == ["is_folder", "no_plain_file"]
    assert opened == []


def test_one_message_has_so_many_files(root: Path) -> None:
    names = [f"f{n}.py" for n in range(MAX_FILES + 2)]
    for name in names:
        write(root, name)
    gathered = gather(" ".join(f"@{name}" for name in [*names, names[0]]), root)
    assert len(gathered.snippets) == MAX_FILES
    assert codes(gathered) == ["too_many_files"] * 2


# Containment


@pytest.fixture
def outside(tmp_path: Path, root: Path) -> Path:
    return write(tmp_path, "elsewhere/outside.txt", "canary\n")


def escapes(root: Path, outside: Path) -> Iterator[tuple[str, str]]:
    """Ways out of the folder: a path to write, and what makes it lead outside."""
    yield "dots", "../elsewhere/outside.txt"
    yield "absolute", str(outside)
    (root / "sub").mkdir()
    yield "dots inside", "sub/../../elsewhere/outside.txt"
    (root / "link.txt").symlink_to(outside)
    yield "link to a file", "link.txt"
    (root / "linked").symlink_to(outside.parent)
    yield "link to a folder", "linked/outside.txt"
    (root / "twice").symlink_to(root / "linked")
    yield "link to a link", "twice/outside.txt"
    (root / "relative").symlink_to("../elsewhere/outside.txt")
    yield "relative link", "relative"


def test_no_way_leads_out_of_the_folder(root: Path, outside: Path) -> None:
    ways = dict(escapes(root, outside))
    assert len(ways) == 7
    for way, path in ways.items():
        with watching() as opened:
            gathered = gather(f"@{path}", root)
        assert (way, codes(gathered)) == (way, ["outside_folder"])
        assert gathered.snippets == ()
        assert outside not in map(Path.resolve, opened)


def test_the_user_s_home_is_outside(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path(os.environ["HOME"])
    write(home, "notes.txt")
    assert codes(gather("@~/notes.txt", root)) == ["outside_folder"]


def test_a_folder_beside_with_a_longer_name_is_outside(root: Path, tmp_path: Path) -> None:
    write(tmp_path, "project-two/a.txt")
    assert codes(gather("@../project-two/a.txt", root)) == ["outside_folder"]


def test_links_inside_the_folder_are_followed(root: Path) -> None:
    (root / "alias.py").symlink_to(write(root, "real.py", "r\n"))
    assert texts(gather("@alias.py", root)) == {"real.py": "r\n"}
    (root / "loop").symlink_to(root / "loop")
    (root / "dangling").symlink_to(root / "nothing")
    assert gather("@loop @dangling", root) == Gathered()


def test_the_folder_may_itself_be_a_link(root: Path, tmp_path: Path) -> None:
    write(root, "a.py", "a\n")
    (tmp_path / "alias").symlink_to(root)
    assert texts(gather("@a.py", tmp_path / "alias")) == {"a.py": "a\n"}


# Secrets


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_never_opened(root: Path, name: str) -> None:
    canary = write(root, name, "canary")
    os.utime(canary, ns=(1, 2))  # older than its change, so that even relatime would note a read
    plain = write(root, "plain.txt")
    with watching() as opened:
        gathered = gather(f'@"{name}" @"{name}":1-2 @plain.txt', root)
    assert plain in opened, "the watcher sees what is opened"
    assert canary not in opened
    assert canary.stat().st_atime_ns == 1
    assert set(codes(gathered)) == {"secret_file"}
    assert set(texts(gathered)) == {"plain.txt"}
    assert "not read" in gathered.refused[0].message


def test_a_link_to_a_secret_and_a_secret_s_name_are_both_refused(root: Path) -> None:
    (root / "notes.txt").symlink_to(write(root, ".env", "canary"))
    (root / "id_rsa").symlink_to(write(root, "harmless.txt"))
    with watching() as opened:
        assert codes(gather("@notes.txt @id_rsa", root)) == ["secret_file"] * 2
    assert opened == []


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_sounds_like_a_secret_goes_along(root: Path, name: str) -> None:
    write(root, name, "x\n")
    assert texts(gather(f"@{name}", root)) == {name: "x\n"}


def test_a_folder_above_with_a_secret_s_name_does_not_count(tmp_path: Path) -> None:
    root = tmp_path / ".kube" / "project"
    root.mkdir(parents=True)
    file = write(root, "a.py", "a\n")
    assert texts(gather(f"@{file}", root)) == {"a.py": "a\n"}


@given(st.sampled_from(SECRETS), st.sampled_from(["", "a/", "a/b/"]))
def test_what_may_not_be_edited_is_not_shown_either(name: str, folder: str) -> None:
    path = PurePath(folder + name)
    assert secret_reason(path)
    assert secret_reason(path.with_name(path.name.upper()))


# Files of a message that is edited again


def test_files_of_an_earlier_message_stay_until_they_are_taken_away(root: Path) -> None:
    write(root, "a.py", "new\n")
    before = gather("@a.py", root).snippets
    gone = type(before[0])(path="gone.py", text="old\n")
    loose = type(before[0])(path="loose.py", text="loose\n")
    kept = KeptFiles("@a.py @gone.py", (*before, gone, loose))
    write(root, "a.py", "newer\n")

    def sent(text: str) -> list[str]:
        return [one.path + " " + one.text for one in kept.beside(gather(text, root), text)]

    assert sent("@a.py @gone.py") == ["loose.py loose\n", "gone.py old\n", "a.py newer\n"]
    assert sent("@a.py") == ["loose.py loose\n", "a.py newer\n"]
    assert kept.drop_last()
    assert not kept.drop_last()
    assert sent("no file") == []
