"""What is shown from other files: what is near, for as long as one stays in one place."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import msgspec
import pytest
from watchdog.events import FileModifiedEvent

from lsp.settings import EditorSettings
from lsp.workspace import REGION_LINES, Workspace
from tests.lsp.workspace_kit import BUDGET, Editor, NoWatch, paths, run, write

INVOICE = '''\
class Invoice:
    """What a customer owes."""

    def __init__(self, customer, tax_rate):
        self.customer = customer
        self.tax_rate = tax_rate

    def total_with_tax(self, amount):
        return amount * (1 + self.tax_rate)
'''
COLOURS = """\
def mix_colours(red, green, blue):
    return blend(red, green, blue)


def brighten(colour, factor):
    return colour.scaled(factor)
"""
SHOP = """\
from invoice import Invoice


def checkout(customer, amount):
    invoice = Invoice(customer, tax_rate=0.2)
    return invoice.total"""
NOISE = {f"noise/n{n}.py": f"def helper{n}(a{n}x):\n    return a{n}x.b{n}y\n" for n in range(6)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(
        tmp_path / "project",
        {"invoice.py": INVOICE, "colours.py": COLOURS, "shop.py": SHOP} | NOISE,
    )


def test_what_is_near_is_shown_from_files_that_nobody_opened(root: Path) -> None:
    async def work() -> None:
        editor = Editor(root)
        editor.open("shop.py")
        first = await editor.workspace.related(editor.end("shop.py"), BUDGET)
        assert first == (), "files are looked at after the first question"
        (snippet,) = await editor.related("shop.py")
        assert snippet.path == "invoice.py"
        assert snippet.text == INVOICE.rstrip("\n")
        await editor.workspace.close()

    run(work)


def test_open_documents_are_there_at_once_and_as_they_are_typed(root: Path) -> None:
    async def work() -> None:
        editor = Editor(root)
        editor.open("shop.py")
        editor.open("invoice.py", INVOICE.replace("tax_rate", "tax_rate_typed"))
        (snippet,) = await editor.related("shop.py")
        assert "tax_rate_typed" in snippet.text
        await editor.workspace.close()

    run(work)


def test_the_best_stands_last_and_the_budget_holds(root: Path) -> None:
    async def work() -> None:
        editor = Editor(root)
        write(root, {"tax.py": "def tax_rate(customer):\n    return customer.country.rate\n"})
        editor.open("shop.py")
        both = await editor.related("shop.py")
        assert paths(both) == ["tax.py", "invoice.py"]
        cost = sum(len(one.text) + len(one.path) for one in both)
        assert cost < BUDGET
        fewer = await editor.related("shop.py", cost)
        assert paths(fewer) == ["invoice.py"]
        assert await editor.related("shop.py", 10) == ()
        await editor.workspace.close()

    run(work)


def test_typing_in_one_place_changes_nothing_and_waits_for_nothing(root: Path) -> None:
    async def work() -> None:
        editor = Editor(root)
        editor.open("shop.py")
        shown = await editor.related("shop.py")
        for line in range(REGION_LINES - 1):
            editor.type(
                "shop.py", f"\n    mix_colours(red, green, {line})  # brighten colour factor"
            )
            question = editor.workspace.related(editor.end("shop.py"), BUDGET)
            with pytest.raises(StopIteration) as answered:
                question.send(None)
            assert answered.value.value == shown
        await editor.workspace.close()

    run(work)


def test_another_place_gets_its_own(root: Path) -> None:
    async def work() -> None:
        editor = Editor(root)
        editor.open("shop.py", SHOP + "\n" * 100 + "def paint(red, green):\n    mix_colours(red")
        assert paths(await editor.related("shop.py")) == ["colours.py"]
        above = editor.at("shop.py", len(SHOP))
        await editor.workspace.related(above, BUDGET)
        await editor.workspace.settled()
        assert paths(await editor.workspace.related(above, BUDGET)) == ["invoice.py"]
        await editor.workspace.close()

    run(work)


def test_a_small_change_elsewhere_changes_nothing_a_great_one_does(root: Path) -> None:
    async def work() -> None:
        editor = Editor(root)
        for name in ("shop.py", "invoice.py"):
            editor.open(name)
        shown = await editor.related("shop.py")
        editor.type("invoice.py", "# a remark")
        assert await editor.related("shop.py") == shown
        editor.replace(
            "invoice.py", 0, 0, f"def tax_rate_of(customer):\n    {'customer.' * 30}x\n\n\n"
        )
        assert await editor.related("shop.py") != shown
        await editor.workspace.close()

    run(work)


def test_a_choice_that_is_nearly_as_good_stays(root: Path) -> None:
    async def work() -> None:
        editor = Editor(root)
        editor.open("shop.py")
        shown = await editor.related("shop.py")
        write(root, {"much_the_same.py": INVOICE.replace('    """What', '    """All that')})
        editor.watch.notes.on_any_event(FileModifiedEvent(str(root / "much_the_same.py")))
        assert await editor.related("shop.py") == shown
        await editor.workspace.close()

    run(work)


def test_a_document_is_not_shown_to_itself(root: Path) -> None:
    async def work() -> None:
        editor = Editor(root)
        write(root, {"copy.py": SHOP})
        os.link(root / "shop.py", root / "again.py")
        (root / "alias").symlink_to(root)
        editor.open("shop.py")
        editor.open("alias/shop.py")
        assert set(paths(await editor.related("shop.py"))) == {"invoice.py"}
        assert set(paths(await editor.related("alias/shop.py"))) == {"invoice.py"}
        await editor.workspace.close()

    run(work)


def test_several_folders_and_folders_that_come_and_go(root: Path, tmp_path: Path) -> None:
    async def work() -> None:
        other = write(tmp_path / "other", {"tax.py": "def tax_rate(customer, amount): ...\n"})
        editor = Editor(root)
        editor.open("shop.py")
        assert paths(await editor.related("shop.py")) == ["invoice.py"]
        editor.use((root, other))
        assert set(paths(await editor.related("shop.py"))) == {"invoice.py", "tax.py"}
        editor.use((other,))
        assert await editor.workspace.related(editor.end("shop.py"), BUDGET) != ("invoice.py",)
        assert paths(await editor.related("shop.py")) == ["tax.py"]
        await editor.workspace.close()

    run(work)


def test_without_a_folder_only_open_documents_are_shown(root: Path) -> None:
    async def work() -> None:
        editor = Editor(root, folders=())
        editor.open("shop.py")
        assert await editor.related("shop.py") == ()
        editor.open("invoice.py")
        assert paths(await editor.related("shop.py")) == ["invoice.py"]
        editor.close("invoice.py")
        assert await editor.related("shop.py") == ()
        await editor.workspace.close()

    run(work)


def test_settings_leave_files_out_at_once(root: Path) -> None:
    async def work() -> None:
        settings = [EditorSettings()]
        editor = Editor(root, settings=lambda: settings[0])
        editor.open("shop.py")
        assert paths(await editor.related("shop.py")) == ["invoice.py"]
        settings[0] = EditorSettings(ignore=("inv*.py", "[", "noise/"))
        assert not editor.workspace.allowed(root / "invoice.py")
        assert not editor.workspace.allowed(root / "noise/n1.py")
        assert editor.workspace.allowed(root / "shop.py")
        assert await editor.workspace.related(editor.end("shop.py"), BUDGET) == ()
        assert await editor.related("shop.py") == ()
        settings[0] = EditorSettings(snippets=False)
        assert await editor.related("shop.py") == ()
        await editor.workspace.close()

    run(work)


def test_odd_files_are_left_out(root: Path) -> None:
    async def work() -> None:
        write(
            root,
            {
                "huge.py": INVOICE + "#" * 80 + "\n" * 1_000_001,
                "minified.py": INVOICE + "x" * 5000,
            },
        )
        (root / "binary.py").write_bytes(INVOICE.encode() + b"\0")
        os.mkfifo(root / "fifo.py")
        editor = Editor(root)
        editor.open("shop.py")
        assert paths(await editor.related("shop.py")) == ["invoice.py"]
        await editor.workspace.close()

    run(work)


class SlowWatch(NoWatch):
    """A watch on a disk that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def cover(self, roots: object, walked: object) -> bool:
        self.begun.set()
        time.sleep(0.5)
        return True


def test_a_slow_disk_holds_up_neither_the_loop_nor_the_answer(root: Path) -> None:
    async def work() -> None:
        slow = SlowWatch()
        editor = Editor(root, watch=lambda: slow)
        for name in ("shop.py", "invoice.py", "colours.py"):
            editor.open(name)
        await editor.workspace.related(editor.end("shop.py"), BUDGET)
        await asyncio.to_thread(slow.begun.wait)
        ticks = 0
        begun = time.monotonic()
        question = asyncio.ensure_future(editor.workspace.related(editor.end("colours.py"), BUDGET))
        while not question.done():
            await asyncio.sleep(0.002)
            ticks += 1
        assert time.monotonic() - begun < 0.4
        assert ticks > 5
        assert await question == (), "what comes too late serves the next question"
        await editor.workspace.close()

    run(work)


def test_it_ends_cleanly_and_shows_nothing_after_that(root: Path) -> None:
    async def work() -> None:
        before = {thread.name for thread in threading.enumerate()}
        editor = Editor(root)
        editor.open("shop.py")
        assert {thread.name for thread in threading.enumerate()} == before, "nothing runs yet"
        await editor.related("shop.py")
        question = editor.workspace.related(editor.at("shop.py", 0), BUDGET)
        await editor.workspace.close()
        assert await question == ()
        assert editor.watch.closed
        assert {thread.name for thread in threading.enumerate()} == before
        await editor.workspace.close()

    run(work)


def test_a_workspace_that_was_never_asked_has_nothing_to_end(root: Path) -> None:
    async def work() -> None:
        await Workspace(EditorSettings).close()

    run(work)


def test_a_file_whose_name_is_in_no_known_encoding_can_be_shown(tmp_path: Path) -> None:
    text = "def reckon_total(prices, discount):\n    return sum(prices) - discount\n"
    write(tmp_path, {"main.py": "def use(prices, discount):\n    reckon_total(prices, discount)\n"})
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.py")).write_text(text)

    async def work() -> None:
        editor = Editor(tmp_path)
        editor.open("main.py")
        (one,) = await editor.related("main.py")
        assert one.path == "caf\ufffd.py"
        assert msgspec.json.encode(one)

    run(work)
