"""The files that `@` offers: what is left out, in git's own sense, and how typed letters rank."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.project_files.tree import Limits
from tests.opened import watching
from tui.file_index import FileIndex, positions, score


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def listed(root: Path) -> list[str]:
    index = FileIndex(root)
    index.refresh()
    return sorted(one.path for one in index.search("", limit=1000))


def best(query: str, *paths: str) -> list[str]:
    """`paths` that fit, best first, as the index itself ranks them."""
    fits = [path for path in paths if positions(query, path)]
    return sorted(fits, key=lambda path: (-score(query, path), len(path), path))


def test_secrets_tools_and_odd_names_are_not_listed(tmp_path: Path) -> None:
    tree(
        tmp_path,
        dict.fromkeys(
            (
                *("a.py", ".github/ci.yml", ".env", ".env.example", "id_rsa", "k/server.pem"),
                *(".aws/config", ".git/config", "node_modules/x/i.js", "__pycache__/a.pyc"),
                *(".docker/config.json", ".docker/Dockerfile", ".a.py.swp", "a.py~"),
                *('say "hi".txt', "two\nlines.txt", "bell\a.txt", "rlo\u202etxt.exe", "a b.txt"),
            ),
            "",
        ),
    )
    with watching() as opened:
        files = listed(tmp_path)
    assert files == [".docker/Dockerfile", ".env.example", ".github/ci.yml", "a b.txt", "a.py"]
    assert opened == [], "listing opens nothing here, there being no rules"


def test_links_lead_no_further_than_the_folder(tmp_path: Path) -> None:
    outside = tree(tmp_path / "outside", {"o.txt": "", "more/p.txt": ""})
    root = tree(tmp_path / "root", {"real.py": "", "sub/s.py": ""})
    (root / "alias.py").symlink_to(root / "real.py")
    (root / "out.txt").symlink_to(outside / "o.txt")
    (root / "out").symlink_to(outside)
    (root / "sub/loop").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    (root / "dangling").symlink_to(root / "nothing")
    os.mkfifo(root / "pipe")
    assert listed(root) == ["alias.py", "real.py", "sub/s.py"]


def test_the_walk_is_bounded_and_says_so(tmp_path: Path) -> None:
    tree(tmp_path, {f"{folder}/{n}.py": "" for folder in "abc" for n in range(20)})
    tree(tmp_path, {"top.py": ""})
    for limits in (Limits(files=10), Limits(entries=10)):
        index = FileIndex(tmp_path, limits=limits)
        index.refresh()
        assert index.truncated
        assert 1 <= len(index) <= 10
        assert index.search("top")[0].path == "top.py", "what is nearest the top comes first"
    whole = FileIndex(tmp_path)
    whole.refresh()
    assert (len(whole), whole.truncated) == (61, False)


def test_a_refresh_sees_what_changed(tmp_path: Path) -> None:
    tree(tmp_path, {"a.py": ""})
    index = FileIndex(tmp_path)
    assert index.age_s == float("inf")
    index.refresh()
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert [one.path for one in index.search("")] == ["a.py"]
    index.refresh()
    assert [one.path for one in index.search("")] == ["b.py"]
    assert index.age_s < 60


def test_a_folder_that_is_gone_is_empty(tmp_path: Path) -> None:
    assert listed(tmp_path / "nothing") == []


# Ranking


def test_names_rank_before_folders_and_runs_before_scattered_letters() -> None:
    assert best("config", "config.py", "app/config/x.py", "my_config.py", "c/o/n/f/i/g.py") == [
        "config.py",
        "my_config.py",
        "app/config/x.py",
        "c/o/n/f/i/g.py",
    ]
    assert best("tpr", "t/p/r.py", "tests/test_prompt.py")[0] == "tests/test_prompt.py"
    assert best("tui/pr", "tui/prompt.py", "app/tui.py", "x/tui/y/pr.py")[0] == "tui/prompt.py"
    assert best("README", "readme.md", "docs/README.md")[0] == "readme.md"
    assert best("xyz", "a.py") == []


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=30))
def test_what_is_matched_is_what_was_typed(query: str, path: str) -> None:
    places = positions(query, path)
    assert list(places) == sorted(set(places))
    if places:
        matched = "".join(path[place] for place in places)
        assert (len(matched), matched.lower()) == (len(query), query.lower())
    if query in path and len(path.lower()) == len(path):
        assert places


@pytest.mark.parametrize(
    "name", ["a", "(", "[", "*", "\\", "^", "$.", "a+b", "-", "x{2}", "ß", "İ"]
)
def test_any_letters_can_be_looked_for(tmp_path: Path, name: str) -> None:
    tree(tmp_path, {f"1{name}2": "", "zzz": ""})
    index = FileIndex(tmp_path)
    index.refresh()
    assert [one.path for one in index.search(name)] == [f"1{name}2"]


# Size


MANY = 20_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many")
    (root / ".gitignore").write_text("*.o\nbuild/\n")
    one = root / ".gitignore"
    for folder in range(MANY // 200):
        place = root / f"pkg{folder % 10}" / f"mod{folder}"
        place.mkdir(parents=True)
        for n in range(200):
            os.link(one, place / f"file_{n}.py")  # many times faster than a file each
    return root


async def gaps_during(index: FileIndex) -> list[float]:
    """Seconds between turns of the loop while the index is made and searched."""
    walking = asyncio.create_task(asyncio.to_thread(index.refresh))
    searching = asyncio.create_task(asyncio.to_thread(index.search, "mf9"))
    gaps: list[float] = []
    last = time.perf_counter()
    while not walking.done() or not searching.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
    return gaps


def test_many_files_never_hold_the_loop(many: Path) -> None:
    """While a thread walks 20,000 files and another searches them, the loop keeps turning. A false
    alarm needs the machine to stand still for half a second."""
    index = FileIndex(many)
    gaps = asyncio.run(gaps_during(index))
    assert len(index) == MANY + 1
    assert len(gaps) > 20, "the loop turned while the thread worked"
    assert max(gaps) < 0.5
    assert index.search("mod7file_19")[0].path == "pkg7/mod7/file_19.py"


def test_a_walk_ends_soon_when_it_is_stopped(many: Path) -> None:
    index = FileIndex(many)
    walk = threading.Thread(target=index.refresh)
    walk.start()
    while not len(index):
        time.sleep(0.001)
    index.stop()
    walk.join(timeout=5)
    assert not walk.is_alive()
    assert 0 < len(index) < MANY, "what was found so far can be searched"


def test_two_walks_at_once_are_one(many: Path) -> None:
    index = FileIndex(many)
    walk = threading.Thread(target=index.refresh)
    walk.start()
    while not len(index):
        time.sleep(0.001)
    index.refresh()
    assert walk.is_alive(), "the second call did not wait"
    index.stop()
    walk.join()
