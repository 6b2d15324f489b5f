"""Nothing secret, ignored or foreign gets into a prompt or is even opened: canaries in all of it.

Every file that this process opens is heard of through Python's audit events, and every snippet that
a session shows is looked at.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from engine.protocol import FillPrompt
from lsp.document import Snapshot
from lsp.file_watch import FileWatch
from lsp.finder import Finder, OpenText, Question
from lsp.path_rules import PathRules
from lsp.settings import EditorSettings
from tests.lsp.workspace_kit import BUDGET, Editor, run, write
from tests.opened import watching

CANARY = "canary_4711"
TEXT = "def checkout_total(customer, amount, tax_rate):\n    return amount * tax_rate\n"
SHOP = "def pay(customer, amount):\n    return checkout_total(customer, amount, tax_rate"
PLANTED = f"# {CANARY}\n{TEXT}"
SECRETS = (
    *(".env", ".env.local", "prod.env", "id_rsa", "deploy.pem", "credentials", "secrets.yaml"),
    *(
        ".ssh/config.py",
        ".aws/config",
        ".git/hooks/hook.py",
        ".shop.py.swp",
        "shop.py~",
        "#shop.py#",
    ),
    *(".docker/config.json", ".bash_history", "sub/.env", "sub/.helper.py.swo"),
)
IGNORED = ("out/built.py", "local.py", "sub/generated_x.py", "node_modules/lib/index.py")
ALLOWED = ("helper.py", "sub/tax.py", ".env.example")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return write(tmp_path / "outside", {"foreign.py": PLANTED, "folder/foreign.py": PLANTED})


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "project"
    write(folder, {".gitignore": "out/\nlocal.py\n", "sub/.gitignore": "generated_*\n"})
    write(folder, dict.fromkeys((*SECRETS, *IGNORED), PLANTED))
    write(folder, dict.fromkeys(ALLOWED, TEXT) | {"shop.py": SHOP})
    (folder / "link.py").symlink_to(outside / "foreign.py")
    (folder / "link_folder").symlink_to(outside / "folder")
    (folder / "harmless.py").symlink_to(folder / ".env")
    return folder


def forbidden(root: Path, outside: Path) -> set[Path]:
    own = {root / name for name in (*SECRETS, *IGNORED)}
    links = {root / name for name in ("link.py", "link_folder/foreign.py", "harmless.py")}
    return own | links | {outside / "foreign.py", outside / "folder/foreign.py"}


def written_by_another_process(root: Path, names: tuple[str, ...]) -> None:
    script = 'for file; do mkdir -p "$(dirname "$file")"; printf "%s" "$TEXT" >> "$file"; done'
    subprocess.run(
        ["sh", "-c", script, "sh", *names], cwd=root, env=os.environ | {"TEXT": PLANTED}, check=True
    )


def prompt_of(snapshot: Snapshot, snippets: object) -> str:
    prompt = FillPrompt(
        prefix=snapshot.prefix,
        suffix=snapshot.suffix,
        path=snapshot.name,
        language="python",
        snippets=tuple(snippets),  # type: ignore[call-overload]
    )
    return repr(prompt)


def test_no_canary_is_opened_or_shown_in_a_session(root: Path, outside: Path) -> None:
    prompts: list[str] = []

    async def work() -> None:
        editor = Editor(root, watch=FileWatch)
        editor.open("shop.py")

        async def look(name: str) -> None:
            at_once = await editor.workspace.related(editor.end(name), BUDGET)
            later = await editor.related(name)
            prompts.extend(prompt_of(editor.end(name), snippets) for snippets in (at_once, later))

        await look("shop.py")
        # What a watch would tell of: everything is written again, and some is new.
        written_by_another_process(root, (*SECRETS, *IGNORED, "later/.env", "later/id_ed25519"))
        await look("shop.py")
        # The user opens them, side by side with what is completed.
        with_canary = (".env", "local.py", "link.py", "harmless.py", ".shop.py.swp", "sub/.env")
        for file in with_canary:
            editor.open(file, PLANTED)
        await look("shop.py")
        editor.type("shop.py", "\n" * 40 + "checkout_total(customer, amount, tax_rate")
        await look("shop.py")
        for file in (".env", "harmless.py", ".shop.py.swp", "sub/.env"):
            assert not editor.workspace.allowed(root / file)
            assert await editor.related(file) == ()
        await editor.workspace.close()

    with watching() as opened:
        run(work)
    assert any("helper.py" in prompt for prompt in prompts), "something is shown"
    assert not [prompt for prompt in prompts if CANARY in prompt]
    seen = {path for path in opened if path.is_relative_to(root.parent)}
    assert root / "helper.py" in seen, "the watcher sees what is opened"
    assert not seen & forbidden(root, outside)


def test_a_file_that_becomes_a_link_after_the_walk_is_not_followed(
    root: Path, outside: Path
) -> None:
    finder = Finder(FileWatch)
    rules = PathRules((root,))
    assert finder.refresh((root,))
    (root / "helper.py").unlink()
    (root / "helper.py").symlink_to(outside / "foreign.py")
    (root / "sub").rename(root / "elsewhere")
    (root / "sub").symlink_to(outside)
    write(outside, {"tax.py": PLANTED})
    snapshot = Snapshot(
        uri="u", version=1, language="python", path=root / "shop.py", text=SHOP, offset=len(SHOP)
    )
    with watching() as opened:
        choice = finder.find(
            Question(snapshot=snapshot, line=1, budget=BUDGET, open=(), rules=rules, before=None)
        )
    finder.close()
    assert CANARY not in repr(choice)
    assert not {outside / "foreign.py", outside / "tax.py", root / "helper.py"} & set(opened)


def test_an_open_document_that_was_never_saved_is_not_shown(root: Path) -> None:
    finder = Finder()
    untitled = Snapshot(
        uri="untitled:1", version=1, language="python", path=None, text=PLANTED, offset=0
    )
    here = Snapshot(
        uri="u", version=1, language="python", path=root / "shop.py", text=SHOP, offset=len(SHOP)
    )
    choice = finder.find(
        Question(
            snapshot=here,
            line=1,
            budget=BUDGET,
            open=(OpenText(snapshot=untitled, age_s=0.0),),
            rules=PathRules(),
            before=None,
        )
    )
    assert choice.taken == ()


# What may be completed in


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_not_completed_in(root: Path, name: str) -> None:
    for folders in ((root,), ()):
        assert not Editor(root, folders=folders).workspace.allowed(root / name)


@pytest.mark.parametrize("name", [*ALLOWED, *IGNORED[:3], "shop.py", "not_there.py"])
def test_all_else_is_even_what_git_ignores(root: Path, name: str) -> None:
    assert Editor(root).workspace.allowed(root / name)


def test_what_was_never_saved_is_completed_in(root: Path) -> None:
    assert Editor(root).workspace.allowed(None)


def test_the_folders_above_the_workspace_do_not_count_its_own_name_does(tmp_path: Path) -> None:
    project = write(tmp_path / ".kube" / "project", {"a.py": TEXT})
    assert Editor(project).workspace.allowed(project / "a.py")
    assert not Editor(project, folders=()).workspace.allowed(project / "a.py")
    home = write(tmp_path / ".aws", {"config": PLANTED})
    assert not Editor(home).workspace.allowed(home / "config")


def test_a_verdict_is_given_anew_when_a_document_is_opened_again(root: Path) -> None:
    editor = Editor(root)
    assert editor.workspace.allowed(root / "helper.py")
    (root / "helper.py").unlink()
    (root / "helper.py").symlink_to(root / ".env")
    editor.open("helper.py", TEXT)
    assert not editor.workspace.allowed(root / "helper.py")


@pytest.mark.parametrize(
    ("globs", "refused", "fine"),
    [
        (("*.md",), ["a.md", "sub/b.md"], ["a.py"]),
        (("/sub/",), ["sub/tax.py"], ["a/sub/tax.py", "sub"]),
        (("*", "!*.py"), ["a.md"], ["a.py"]),
        (("[bad", "x.py"), ["x.py"], ["y.py"]),
    ],
)
def test_globs_of_the_settings_are_those_of_a_gitignore(
    root: Path, globs: tuple[str, ...], refused: list[str], fine: list[str]
) -> None:
    workspace = Editor(root, settings=lambda: EditorSettings(ignore=globs)).workspace
    assert [name for name in refused if workspace.allowed(root / name)] == []
    assert [name for name in fine if not workspace.allowed(root / name)] == []


def test_the_same_globs_hold_where_there_is_no_folder(root: Path) -> None:
    settings = EditorSettings(ignore=("*.md",))
    workspace = Editor(root, folders=(), settings=lambda: settings).workspace
    assert not workspace.allowed(Path(os.sep) / "somewhere" / "a.md")
    assert workspace.allowed(Path(os.sep) / "somewhere" / "a.py")
