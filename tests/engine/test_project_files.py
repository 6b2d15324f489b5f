"""Which files of a project may be seen: names of secrets, git's own rules, and the walk by both."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path, PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.project_files.secrets import is_version_control, secret_reason
from engine.project_files.tree import Limits, ProjectTree
from tests.opened import watching

SECRETS = {
    "keys or passwords": (
        *(".env", ".ENV", ".env.production", "deploy/prod.env", ".envrc", "server.pem", "a.key"),
        *("id_rsa", "keys/id_ed25519", "credentials", "credentials.json", "my_credentials"),
        *(".netrc", ".npmrc", ".pypirc", ".git-credentials", ".aws/config", ".ssh/known_hosts"),
        *(".docker/config.json", ".config/gcloud/access_tokens.db", "terraform.tfstate"),
        *("x.tfvars.json", "wallet.kdbx", ".env ", ".env::$DATA", "\u200b.env", "\uff0eenv"),
    ),
    "typed in a shell": (".bash_history", "fish_history", ".psql_history"),
    "an editor left": (
        *(".main.py.swp", ".main.py.swo", ".main.py.swk", "main.py~", "#main.py#", ".#main.py"),
        *(".main.py.un~", ".main.py.kate-swp", "main.py___jb_tmp___", "env.example~"),
    ),
    "version control": (".git/config", "a/.hg/store", ".GIT/HEAD", ".jj/repo/x", "git~1/config"),
}
HARMLESS = (
    *("main.py", ".env.example", ".env.sample", "secrets.py", "environment.py", "id_rsa.pub"),
    *(".docker/Dockerfile", ".gitignore", ".github/ci.yml", "keys.py", "movie.swf", "a.b~c"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "project"


@pytest.mark.parametrize(
    ("name", "reason"), [(name, reason) for reason, names in SECRETS.items() for name in names]
)
def test_a_secret_s_name_gives_it_away(name: str, reason: str) -> None:
    assert reason in (secret_reason(PurePath(name)) or "")
    assert reason in (secret_reason(PurePath("a/b") / name) or "")


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_sounds_like_a_secret_is_none(name: str) -> None:
    assert secret_reason(PurePath(name)) is None


@given(st.sampled_from([name for names in SECRETS.values() for name in names]))
def test_case_hides_nothing(name: str) -> None:
    assert secret_reason(PurePath(name.upper())) is not None


def test_no_path_at_all_is_no_secret() -> None:
    assert secret_reason(PurePath()) is None
    assert not is_version_control(PurePath("gitlab/config"))
    assert is_version_control(PurePath("a/.Git./config"))


# The walk


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def listed(root: Path) -> list[str]:
    """What a walk gives; each file is asked about by itself as well."""
    walked = ProjectTree(root)
    files = [entry for folder in walked.walk(threading.Event()) for entry in folder.files]
    anew = ProjectTree(root)
    assert all(anew.holds(Path(entry.path)) for entry in files if not entry.is_symlink())
    paths = {Path(entry.path) for entry in files}
    others = {Path(file) for file in walked.root.rglob("*") if file.is_file()} - paths
    assert not [file for file in others if anew.holds(file)]
    return sorted(Path(entry.path).relative_to(walked.root).as_posix() for entry in files)


NESTED = {
    ".gitignore": "*.log\n/build/\nsecret-*\n!important.log\ndocs/**/draft.md\n[bad\n\\\n",
    "a.py": "",
    "a.log": "",
    "important.log": "",
    "build/out.txt": "",
    "sub/build/kept.txt": "",
    "sub/.gitignore": "!*.log\n*.tmp\n/only-here.txt\n",
    "sub/b.log": "",
    "sub/x.tmp": "",
    "sub/only-here.txt": "",
    "sub/deep/only-here.txt": "",
    "sub/deep/.gitignore": "b.log\n!x.tmp\n",
    "sub/deep/b.log": "",
    "sub/deep/x.tmp": "",
    "other/x.tmp": "",
    "docs/a/b/draft.md": "",
    "docs/final.md": "",
    "closed/.gitignore": "*\n",
    "closed/in.txt": "",
    "reopened/.gitignore": "inner/\n!inner/kept.txt\n",
    "reopened/inner/kept.txt": "",
    "ünï/日本.txt": "",
}


def test_nested_rules_are_git_s_own(tmp_path: Path) -> None:
    """Git itself is asked what it would list."""
    root = tree(tmp_path / "repo", NESTED)
    git = ["git", "-c", "core.quotepath=off", "-c", "core.excludesFile="]
    subprocess.run([*git, "init", "-q", root], check=True)
    known = subprocess.run(
        [*git, "-C", root, "ls-files", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert len(known) > 10
    assert listed(root) == sorted(known)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("worktree", [True, False])
def test_rules_that_no_gitignore_holds_are_git_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool, worktree: bool
) -> None:
    """The user's file, under its own name or the usual one, and the repository's `info/exclude`."""
    home = tree(
        tmp_path / "home",
        {
            ".gitconfig": "[core]\n\texcludesFile = ~/mine\n" if named else "",
            "mine": "*.mine\n",
            ".config/git/ignore": "*.usual\n",
        },
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    root = tmp_path / "repo"
    names = {"a.mine": "", "a.usual": "", "a.once": "", "a.txt": "", ".gitignore": "!b.once\n"}
    git = ["git", "-c", "user.name=me", "-c", "user.email=me@here"]
    subprocess.run([*git, "init", "-q", root], check=True)
    (root / ".git" / "info" / "exclude").write_text("*.once\n")
    if worktree:
        commit = [*git, "-C", root, "commit", "-q", "--allow-empty", "-m", "x"]
        subprocess.run(commit, check=True)
        beside = tmp_path / "beside"
        subprocess.run([*git, "-C", root, "worktree", "add", "-q", beside], check=True)
        root = beside
    tree(root, {**names, "b.once": ""})
    known = subprocess.run(
        [*git, "-C", root, "ls-files", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    assert ("a.usual" in known) is named
    assert listed(root) == sorted(known)


def test_rules_hold_without_a_repository(tmp_path: Path) -> None:
    files = listed(tree(tmp_path / "plain", NESTED))
    assert "sub/b.log" in files
    assert not {"a.log", "sub/x.tmp", "build/out.txt", "sub/deep/b.log"} & set(files)


def test_rules_from_above_the_folder_hold(tmp_path: Path) -> None:
    repo = tree(
        tmp_path,
        {
            ".gitignore": "*.o\n/part/local.txt\n",
            ".git/info/exclude": "*.mine\n",
            "part/a.o": "",
            "part/local.txt": "",
            "part/b.mine": "",
            "part/c.c": "",
        },
    )
    assert listed(repo / "part") == ["c.c"]


def test_a_folder_that_is_ignored_itself_is_still_listed(tmp_path: Path) -> None:
    repo = tree(tmp_path, {".gitignore": "build/\n", ".git/HEAD": "", "build/a.py": ""})
    assert listed(repo) == [".gitignore"]
    assert listed(repo / "build") == ["a.py"]


@pytest.mark.parametrize("kind", ["fifo", "folder", "huge", "unreadable"])
def test_rules_that_cannot_be_read_are_none(tmp_path: Path, kind: str) -> None:
    tree(tmp_path, {"a.py": ""})
    rules = tmp_path / ".gitignore"
    if kind == "fifo":
        os.mkfifo(rules)
    elif kind == "folder":
        rules.mkdir()
    elif kind == "huge":
        rules.write_text("*.py\n" * (1 << 18))
    else:
        rules.symlink_to(tmp_path / "nothing")
    assert "a.py" in listed(tmp_path)


def test_links_may_be_left_out(root: Path) -> None:
    tree(root, {"a.py": "", "sub/b.py": ""})
    (root / "alias.py").symlink_to(root / "a.py")
    (root / "away").symlink_to(root / "sub")
    assert listed(root) == ["a.py", "alias.py", "sub/b.py"]
    (top, _sub) = ProjectTree(root, links=False).walk(threading.Event())
    assert [entry.name for entry in top.files] == ["a.py"]
    project = ProjectTree(root)
    assert project.holds(root / "a.py")
    assert not project.holds(root / "alias.py")
    assert not project.holds(root / "away" / "b.py")
    assert not project.holds(root)
    assert not project.holds(root.parent / "elsewhere.py")


def test_a_folder_tells_what_it_goes_into_and_what_not(root: Path) -> None:
    tree(root, {"src/a.py": "", "node_modules/x/i.js": "", ".ssh/k": "", "out/o": ""})
    (root / ".gitignore").write_text("out/\n")
    top = next(ProjectTree(root).walk(threading.Event()))
    assert [Path(path).name for path in top.kept] == ["src"]
    assert [Path(path).name for path in top.left_out] == [".ssh", "node_modules", "out"]


def test_a_walk_opens_nothing_but_rules(root: Path) -> None:
    tree(root, {name: "canary" for names in SECRETS.values() for name in names})
    tree(root, {".gitignore": "*.log\n", "a.log": "canary", "a.py": ""})
    with watching() as opened:
        assert listed(root) == [".gitignore", "a.py"]
    assert {path.name for path in opened} == {".gitignore"}


def test_a_walk_stops_at_its_limits_and_when_it_is_told(root: Path) -> None:
    tree(root, {f"{folder}/{n}.py": "" for folder in "abc" for n in range(20)})
    for limits in (Limits(files=10), Limits(entries=10)):
        project = ProjectTree(root, limits=limits)
        files = [entry for folder in project.walk(threading.Event()) for entry in folder.files]
        assert project.truncated
        assert 1 <= len(files) <= 10
    stopped = threading.Event()
    walk = ProjectTree(root).walk(stopped)
    next(walk)
    stopped.set()
    assert list(walk) == []
