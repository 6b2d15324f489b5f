"""The input: keys, pastes, history, completion, files with their cost, and what is finally sent."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App, ComposeResult
from textual.message import Message
from textual.pilot import Pilot
from textual.widgets import Static, TextArea
from textual.widgets.text_area import Selection

from engine.protocol import ChatPrompt, EngineError, PromptCost, RequestError, Snippet
from tests.fakes import ScriptedEngine
from tui import pastes
from tui.attached_files import FileChips
from tui.completion import Completions
from tui.pastes import Draft
from tui.prompt import PromptInput
from tui.prompt_area import ACTIONS, PromptArea
from tui.prompt_history import PromptHistory
from tui.prompt_layout import shares
from tui.terminal_keys import accept_any_bytes, teach_alt_enter

LARGE = "".join(f"line {n}\n" for n in range(42))
Sent = tuple[str, tuple[Snippet, ...]]


class Host(App[None]):
    """An input, and what it told."""

    CSS = "Host { align: left bottom; } #rest { height: 1fr; }"

    def __init__(self, root: Path, **settings: object) -> None:
        super().__init__()
        self.sent: list[Sent] = []
        self.ran: list[tuple[str, str]] = []
        self.digests: dict[str, str] = {}
        self.escaped = 0
        self.counted: list[tuple[str, ...]] = []
        self.engine = ScriptedEngine(())
        self.prompt = PromptInput(root, **{"count": self.count, **settings})  # type: ignore[arg-type]

    def compose(self) -> ComposeResult:
        yield Static("the transcript", id="rest", markup=False)
        yield self.prompt

    async def count(self, snippets: tuple[Snippet, ...]) -> PromptCost:
        self.counted.append(tuple(one.path for one in snippets))
        return await self.engine.measure(ChatPrompt(turns=(), snippets=snippets))

    def on_prompt_input_submitted(self, event: PromptInput.Submitted) -> None:
        self.sent.append((event.text, event.snippets))
        self.digests = event.digests

    def on_prompt_input_command(self, event: PromptInput.Command) -> None:
        self.ran.append((event.name, event.argument))

    def key_escape(self) -> None:
        self.escaped += 1

    @property
    def area(self) -> PromptArea:
        return self.query_one(PromptArea)

    @property
    def popup(self) -> Completions:
        return self.query_one(Completions)

    def rows(self) -> list[str]:
        if not self.popup.is_open:
            return []
        shown = range(self.popup.option_count)
        return [str(self.popup.get_option_at_index(n).prompt) for n in shown]

    def chips(self) -> str:
        chips = self.query_one(FileChips)
        return str(chips.content) if chips.display else ""

    def notice(self) -> str:
        notice = self.query_one("#prompt-notice", Static)
        return str(notice.content) if notice.display else ""

    def paste(self, text: str) -> None:
        self.post_message(events.Paste(text))

    def terminal(self, data: str) -> None:
        """What the driver would make of bytes from the terminal."""
        parser = XTermParser()
        for event in [*parser.feed(data), *parser.feed("")]:
            event.set_sender(self)
            self.post_message(event)


Play = Callable[[Host, Pilot[None]], Awaitable[None]]


def play(root: Path, script: Play, size: tuple[int, int] = (80, 24), **settings: object) -> Host:
    app = Host(root, **settings)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            app.area.cursor_blink = False
            await script(app, pilot)

    asyncio.run(run())
    return app


async def type_in(app: Host, pilot: Pilot[None], text: str) -> None:
    """Type `text` and let it arrive; pressing keys one by one takes the pilot far longer."""
    app.terminal(text)
    await settled(pilot)


async def settled(pilot: Pilot[None]) -> None:
    for _ in range(4):
        await pilot.pause(0)


async def until(pilot: Pilot[None], holds: Callable[[], object]) -> None:
    """Wait for what another thread or a timer brings about."""
    for _ in range(400):
        await pilot.pause(0.01)
        if holds():
            return
    pytest.fail("waited in vain")


async def send(app: Host, pilot: Pilot[None]) -> str:
    count = len(app.sent)
    await pilot.press("enter")
    await until(pilot, lambda: len(app.sent) > count)
    return app.sent[-1][0]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src/app.py").write_text("print('hello')\n" * 40)
    (folder / "src/my file.txt").write_text("words")
    (folder / "README.md").write_text("# Read me\n")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "app.log").write_text("noise")
    (folder / ".env").write_text("KEY=canary")
    return folder


# Keys


def test_enter_sends_and_empties(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await pilot.press("enter", "space", "enter")
        assert app.prompt.has_text
        await pilot.press("backspace")
        await type_in(app, pilot, "hello")
        assert await send(app, pilot) == "hello"
        assert not app.prompt.has_text
        assert app.prompt.history == ["hello"]

    assert play(root, script).sent == [("hello", ())]


@pytest.mark.parametrize("key", ["shift+enter", "ctrl+j", "alt+enter"])
def test_other_enters_break_the_line(root: Path, key: str) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await pilot.press("a", key, "b")
        assert await send(app, pilot) == "a\nb"

    play(root, script)


@pytest.mark.parametrize(
    "code", ["\n", "\x1b\r", "\x1b[13;2u", "\x1b[13;3u", "\x1b[27;2;13~", "\x1b[106;5u"]
)
def test_so_do_the_codes_that_terminals_send_for_them(root: Path, code: str) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        teach_alt_enter()
        app.terminal(f"a{code}b")
        await pilot.pause()
        assert app.prompt.text == "a\nb"

    assert play(root, script).sent == []


def test_a_byte_that_is_no_utf_8_ends_nothing(root: Path) -> None:
    """Without `accept_any_bytes` Textual's reading thread raises here."""
    from textual.drivers.linux_driver import LinuxDriver

    accept_any_bytes()
    reader, writer = os.pipe()
    os.write(writer, "a\x9bé".encode("latin-1") + "世".encode())
    typed: list[str] = []

    async def script(app: Host, pilot: Pilot[None]) -> None:
        driver = LinuxDriver(app)
        driver.fileno = reader

        def take(message: Message) -> None:
            assert isinstance(message, events.Key)
            typed.append(message.character or "")
            driver.exit_event.set()

        driver.process_message = take  # type: ignore[method-assign]
        driver.run_input_thread()

    try:
        play(root, script)
    finally:
        os.close(writer)
        os.close(reader)
    assert typed == ["a", "\ufffd", "\ufffd", "世"]


def test_it_grows_to_eight_lines_and_scrolls_then(root: Path) -> None:
    heights = []

    async def script(app: Host, pilot: Pilot[None]) -> None:
        for _ in range(11):
            heights.append(app.area.content_size.height)
            await pilot.press("ctrl+j")
            await pilot.pause()

    play(root, script)
    assert heights == [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8]


@pytest.mark.parametrize(
    "report", ["\x1b[<NaN;NaN;NaNM", "\x1b[<35;NaN;NaNm", "\x1b[<35;NaN;12M\x1b[<35;NaN;NaNM"]
)
def test_mouse_reports_without_a_place_are_not_typed(root: Path, report: str) -> None:
    """Textual takes them for typing, which the first assertion holds."""
    parser = XTermParser()
    typed = [*parser.feed(report), *parser.feed("")]
    assert len([event for event in typed if isinstance(event, events.Key)]) > 10

    async def script(app: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*"ab", "left")
        app.terminal(report + "c")
        await pilot.pause()
        assert app.prompt.text == "acb"

    play(root, script)


def test_what_only_resembles_a_mouse_report_is_kept(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.terminal("x[<3;4;5M NaNM [<NaN;1M")
        await pilot.pause()
        assert app.prompt.text == "x[<3;4;5M NaNM [<NaN;1M"

    play(root, script)


def test_wide_letters_emoji_and_joiners_are_typed_whole(root: Path) -> None:
    text = "日本語 한국어 e\u0301 👩\u200d💻 می\u200cخواهم 🇩🇪"

    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.terminal(text)
        await pilot.pause()
        assert await send(app, pilot) == text

    play(root, script)


def test_ctrl_c_and_the_chat_s_own_keys_are_left_to_the_chat(root: Path) -> None:
    assert not {"ctrl+c", "ctrl+k", "f6", "f7", "escape", "enter", "tab"} & set(ACTIONS)


def test_keys_typed_ahead_keep_their_order(root: Path) -> None:
    """All in one read, as when the machine was busy: an edit, a command, a message with a file, a
    choice from the popup, history."""

    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.terminal("ac\x7fb\x1b[D-\r/hel\rsee @README.md now\rnext\x1b[A\x1b[Bx")
        await until(pilot, lambda: app.prompt.text == "nextx")

    app = play(root, script)
    assert [text for text, _ in app.sent] == ["a-b", "see @README.md now"]
    assert [one.path for one in app.sent[1][1]] == ["README.md"]
    assert app.ran == [("help", "")]


def test_a_row_is_taken_for_what_was_typed_last(root: Path) -> None:
    """The popup shows rows for `@` while letters and tab come in one read."""

    async def script(app: Host, pilot: Pilot[None]) -> None:
        await type_in(app, pilot, "@")
        await until(pilot, lambda: len(app.rows()) == 4)
        app.terminal("my\tgo")
        await until(pilot, lambda: app.prompt.text.endswith("go"))
        assert app.prompt.text == '@"src/my file.txt" go'

    play(root, script)


# Pastes


def test_a_large_paste_is_one_piece_and_sent_whole(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await type_in(app, pilot, "see ")
        app.paste(LARGE.replace("\n", "\r"))
        await type_in(app, pilot, " ok")
        assert app.area.text == "see [Pasted text #1, 42 lines] ok"
        assert await send(app, pilot) == f"see {LARGE} ok"

    play(root, script)


@pytest.mark.parametrize(
    ("text", "collapsed"),
    [
        ("x" * 799, False),
        ("x" * 800, True),
        ("\n".join("123456789"), False),
        ("\n".join("1234567890"), True),
        ("123456789\n" * 9, False),
        ("admin\u202eevil", True),
        ("one\u2028two", True),
        ("é日👩\u200d💻\t|", False),
    ],
)
def test_what_is_collapsed(root: Path, text: str, collapsed: bool) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.paste(text)
        await pilot.pause()
        assert app.area.text.startswith("[Pasted text #1, ") == collapsed
        assert await send(app, pilot) == text

    play(root, script)


def test_controls_and_colours_are_taken_out_of_a_paste(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.paste("a\x00\x07\x1b[31mred\x1b[0m\x9b1m\x1b]0;title\x07\x7f\r\nb\tc\rd")
        assert await send(app, pilot) == "ared1m\nb\tc\nd"
        app.paste("\x07\x1b[0m")
        await pilot.pause()
        assert not app.prompt.has_text

    play(root, script)


def test_a_placeholder_has_no_inside_and_goes_as_a_whole(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.paste(LARGE)
        await pilot.press("b", "left", "left", "a")
        assert app.prompt.text == f"a{LARGE}b"
        await pilot.press("right", "c")
        assert app.prompt.text == f"a{LARGE}cb"
        await pilot.press("left", "left", "delete")
        assert app.prompt.text == "acb"
        await pilot.press("ctrl+z")
        assert app.prompt.text == f"a{LARGE}cb"
        await pilot.press("ctrl+y")
        assert app.prompt.text == "acb"
        await pilot.press("ctrl+z", "home", "right", "right", "backspace")
        assert app.prompt.text == "acb"

    play(root, script)


def test_the_same_words_typed_by_hand_stay_words(root: Path) -> None:
    label = "[Pasted text #1, 42 lines]"

    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.terminal(f"{label} is ")
        app.paste(LARGE)
        await pilot.pause()
        assert app.area.text == f"{label} is {label}"
        assert await send(app, pilot) == f"{label} is {LARGE}"

    play(root, script)


def test_pasting_again_or_a_key_shows_it_in_full(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.paste(LARGE)
        app.paste(LARGE)
        await pilot.pause()
        assert app.area.text == LARGE
        app.paste(LARGE)
        await pilot.press("x")
        assert app.area.text == f"{LARGE}[Pasted text #2, 42 lines]x"
        await pilot.press("ctrl+o")
        assert app.area.text == f"{LARGE}{LARGE}x"
        await pilot.press("ctrl+z")
        assert app.area.text == f"{LARGE}[Pasted text #2, 42 lines]x"

    play(root, script)


def test_what_is_copied_or_cut_is_what_it_stands_for(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await pilot.press("a")
        app.paste(LARGE)
        await pilot.press("b", "home", "shift+end")
        assert app.prompt.selected_text == f"a{LARGE}b"
        await pilot.press("ctrl+x")
        assert (app.clipboard, app.prompt.text) == (f"a{LARGE}b", "")
        await pilot.press("ctrl+v")
        assert app.prompt.text == f"a{LARGE}b"

    play(root, script)


def random_step(chance: random.Random, shown: str) -> tuple[str, object]:
    """One thing that a user does, and its data."""
    kinds = ["type"] * 5 + ["paste"] * 3 + ["large"] * 3 + ["move"] * 4
    kinds += ["delete", "back", "select", "undo", "redo", "expand", "newline", "word"]
    kind = chance.choice(kinds)
    if kind == "type":
        return kind, "".join(chance.choice("ab 9日é]#[,") for _ in range(chance.randint(1, 3)))
    if kind == "paste":
        return kind, chance.choice(["one\r\ntwo", "x", "[Pasted text #1, 12 lines]", "\ttab\n"])
    if kind == "large":
        return kind, f"{chance.random()}\n" * 12 + chance.choice(["", "tail"])
    if kind in ("move", "select"):
        return kind, (chance.randint(0, len(shown)), chance.randint(0, len(shown)))
    return kind, None


KEYS = {
    "delete": "\x1b[3~",
    "back": "\x7f",
    "undo": "\x1a",
    "redo": "\x19",
    "expand": "\x0f",
    "newline": "\n",
    "word": "\x17",
}


async def do(step: tuple[str, object], app: Host, pilot: Pilot[None]) -> None:
    kind, data = step
    if kind == "type":
        app.terminal(str(data))
    elif kind in ("paste", "large"):
        app.paste(str(data))
    elif isinstance(data, tuple):
        start, end = map(app.area.location_at, data)
        app.area.selection = Selection(start if kind == "select" else end, end)
    else:
        app.terminal(KEYS[kind])
    await settled(pilot)


Pieces = list[tuple[str, int]]
"""A text cut into characters and pastes, each with its length as shown."""


def pieces_of(app: Host) -> Pieces:
    pieces: Pieces = []
    at = 0
    for span in app.area.spans:
        pieces += [(letter, 1) for letter in app.area.text[at : span.start]]
        pieces.append((app.area.pastes[span.paste], span.end - span.start))
        at = span.end
    return pieces + [(letter, 1) for letter in app.area.text[at:]]


def replaced(pieces: Pieces, start: int, end: int, new: str) -> str:
    """The whole text after an edit, worked out piece by piece: slow and obvious."""
    before, behind, at = "", "", 0
    for text, length in pieces:
        if at + length <= start:
            before += text
        elif at >= end:
            behind += text
        at += length
    return before + new + behind


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_done_nothing_typed_or_pasted_is_lost(root: Path, seed: int) -> None:
    """The text to be sent follows a plain model through random editing; undo and redo, which have
    a history of their own, must lead back to texts that were there before."""
    chance = random.Random(seed)

    async def script(app: Host, pilot: Pilot[None]) -> None:
        seen = {""}
        for number in range(40):
            area = app.area
            start, end = sorted(map(area.place_of, area.selection))
            pieces, before = pieces_of(app), app.prompt.text
            kind, data = step = random_step(chance, area.text)
            await do(step, app, pilot)
            text = app.prompt.text
            if kind in ("type", "paste", "large", "newline"):
                new = "\n" if kind == "newline" else str(data).replace("\r\n", "\n")
                assert text == replaced(pieces, start, end, new), (number, step)
            elif kind in ("move", "select", "expand"):
                assert text == before, (number, step)
            elif kind in ("undo", "redo"):
                assert text in seen, (number, step)
            seen.add(text)
        await type_in(app, pilot, " end")
        whole = app.prompt.text
        if not whole.startswith("/"):
            assert await send(app, pilot) == whole

    play(root, script)


@given(st.text(max_size=12), st.lists(st.text(min_size=1, max_size=5), max_size=3), st.data())
def test_expansion_is_exact(text: str, pasted: list[str], data: st.DataObject) -> None:
    """Placeholders put into a text one after the other come back as what they stand for."""
    spans: pastes.Spans = ()
    shown, whole = text, text
    known = dict(enumerate(pasted, start=1))
    for number, paste in known.items():
        place = data.draw(st.integers(0, len(shown)))
        place, _ = pastes.grown(spans, place, place)
        mark = pastes.label(number, paste)
        before = pastes.expand(shown[:place], pastes.within(spans, 0, place), known)
        whole = before + paste + whole[len(before) :]
        spans = pastes.moved(spans, place, place, len(mark))
        new = pastes.Span(start=place, end=place + len(mark), paste=number)
        spans = tuple(sorted((*spans, new), key=lambda span: span.start))
        shown = shown[:place] + mark + shown[place:]
        assert pastes.expand(shown, spans, known) == whole


# History


def test_up_and_down_walk_the_history_at_the_edges_only(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*"draft", "up")
        assert app.prompt.text == "two\nlines"
        await pilot.press("up")
        assert app.prompt.text == "two\nlines", "the cursor went up a line"
        await pilot.press("up", "up", "up")
        assert app.prompt.text == "one"
        await pilot.press("down", "down", "down")
        assert app.prompt.text == "draft"

    play(root, script, history=["one", "two\nlines"])


def test_a_draft_with_a_placeholder_survives_the_walk(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.paste(LARGE)
        await pilot.press("x", "up", "down")
        assert app.area.text == "[Pasted text #1, 42 lines]x"
        assert await send(app, pilot) == f"{LARGE}x"
        await pilot.press("up")
        assert app.prompt.text == f"{LARGE}x"

    play(root, script, history=["one"])


def test_what_is_cleared_can_be_had_again(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await type_in(app, pilot, "gone?")
        app.prompt.clear()
        assert not app.prompt.has_text
        await pilot.press("up")
        assert app.prompt.text == "gone?"

    play(root, script)


def test_history_keeps_no_twins() -> None:
    past = PromptHistory(["a"])
    past.add("a")
    past.add("b")
    assert past.entries == ["a", "b"]
    assert [past.step(-1, Draft(text="x")) for _ in "123"] == ["b", "a", None]


def test_what_was_sent_is_recalled_so_that_it_would_be_sent_again(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.prompt.history = ["/new is a command", "// comment"]
        await pilot.press("up", "up")
        assert await send(app, pilot) == "/new is a command"
        app.prompt.load("//twice", ())
        assert await send(app, pilot) == "//twice"
        app.prompt.load("/help ")
        await pilot.press("enter")

    assert play(root, script).ran == [("help", "")]


def test_loading_a_message_loses_no_draft(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await type_in(app, pilot, "half a thought")
        app.prompt.load("an earlier message", ())
        await pilot.press("up")
        assert app.prompt.text == "half a thought"

    play(root, script)


# Completion


def test_a_file_is_found_by_a_few_letters_and_attached(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await type_in(app, pilot, "read @sap")
        await until(pilot, app.rows)
        assert app.rows() == ["src/app.py"]
        await pilot.press("enter")
        assert app.prompt.text == "read @src/app.py "
        assert not app.rows()
        await type_in(app, pilot, "\x7f:2-3")
        await send(app, pilot)

    app = play(root, script)
    assert [one.path for one in app.sent[0][1]] == ["src/app.py:2-3"]
    assert app.sent[0][1][0].text == "print('hello')\n" * 2
    whole = hashlib.sha256((root / "src/app.py").read_bytes()).hexdigest()
    assert app.digests == {"src/app.py": whole}


def test_a_name_with_a_space_is_quoted(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await type_in(app, pilot, "@my")
        await until(pilot, app.rows)
        await pilot.press("tab")
        assert app.prompt.text == '@"src/my file.txt" '

    play(root, script)


def test_what_git_ignores_and_secrets_are_not_offered(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await pilot.press("@")
        await until(pilot, lambda: len(app.rows()) == 4)
        assert app.rows() == [".gitignore", "README.md", "src/app.py", "src/my file.txt"]

    play(root, script)


def test_arrows_choose_escape_closes_and_only_then_leaves(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await pilot.press("@")
        await until(pilot, lambda: len(app.rows()) == 4)
        await pilot.press("down", "down", "up", "up", "up")
        assert app.popup.highlighted == 3
        await pilot.press("escape")
        assert (app.rows(), app.escaped) == ([], 0)
        await pilot.press("a")
        await pilot.pause(0.05)
        assert app.rows() == [], "it stays closed for this word"
        await pilot.press("escape")
        assert app.escaped == 1
        await pilot.press("space", "@")
        await until(pilot, app.rows)

    play(root, script)


def test_commands_are_completed_and_run(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await type_in(app, pilot, "/te")
        await pilot.pause()
        assert app.rows()[0].startswith("/temperature [T]")
        await pilot.press("enter")
        assert app.prompt.text == "/temperature "
        await type_in(app, pilot, "0.5\r")
        await type_in(app, pilot, "/hel")
        await pilot.press("enter")
        await type_in(app, pilot, "/system")
        await pilot.press("enter")

    app = play(root, script)
    assert app.ran == [("temperature", "0.5"), ("help", ""), ("system", "")]
    assert app.sent == []


def test_a_wrong_command_stays_in_the_input_with_a_sentence(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await type_in(app, pilot, "/temperature 11\r")
        assert app.prompt.text == "/temperature 11"
        assert "from 0 to 10" in app.notice()
        await pilot.press("backspace")
        await pilot.pause()
        assert app.notice() == ""
        app.prompt.clear()
        await type_in(app, pilot, "/sistem [x]\r")
        assert "Did you mean /system?" in app.notice()

    assert play(root, script).ran == []


def test_two_slashes_send_one_and_say_so(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        await type_in(app, pilot, "//new is a command")
        await pilot.pause()
        assert app.notice() == "Sent as “/new is a command”"
        assert await send(app, pilot) == "/new is a command"
        await type_in(app, pilot, "// comment")
        await pilot.pause()
        assert app.notice() == ""
        assert await send(app, pilot) == "// comment"
        app.paste("/new\n" * 12)
        assert await send(app, pilot) == "/new\n" * 12, "a paste is no command"

    assert play(root, script).ran == []


# Files and their cost


def test_files_are_shown_with_their_tokens_before_they_are_sent(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.terminal("compare @src/app.py with @README.md ")
        await until(pilot, lambda: "prompt" in app.chips())
        assert app.chips() == (
            " src/app.py 150 tokens    README.md 3 tokens   prompt 153 of 16,384 tokens"
        )
        assert app.counted == [("src/app.py", "README.md")], "counted once, when typing paused"
        app.terminal("\x7f" * 11)
        await until(pilot, lambda: "README" not in app.chips())
        app.prompt.clear()
        await until(pilot, lambda: app.chips() == "")

    assert play(root, script).sent == []


def test_without_the_engine_the_size_is_shown(root: Path) -> None:
    async def fail(snippets: tuple[Snippet, ...]) -> PromptCost:
        raise RequestError("loading", "the model is [b]loading[/b]", "Wait.")

    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.terminal("@README.md ")
        await until(pilot, lambda: "not known" in app.chips())
        assert app.chips() == " README.md 10 B   tokens not known: the model is [b]loading[/b]"

    play(root, script, count=fail)
    assert issubclass(RequestError, EngineError)


def test_a_refused_file_holds_the_message_back(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.terminal("read @.env and @gone.py ")
        await until(pilot, app.notice)
        assert ".env may hold keys or passwords, so it was not read" in app.notice()
        assert "@gone.py: no such file here, sent as plain words" in app.notice()
        await pilot.press("enter")
        await pilot.pause(0.2)
        assert app.prompt.text == "read @.env and @gone.py "
        app.prompt.load("read @gone.py")
        assert await send(app, pilot) == "read @gone.py"

    assert play(root, script).sent == [("read @gone.py", ())]


def test_what_is_named_in_a_placeholder_is_not_attached(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.paste("@README.md\n@.env\n" * 10)
        await send(app, pilot)

    assert play(root, script).sent == [("@README.md\n@.env\n" * 10, ())]


def test_a_loaded_message_keeps_its_files_until_they_are_taken_away(root: Path) -> None:
    old = (Snippet(path="gone.py", text="old"), Snippet(path="README.md", text="stale"))

    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.prompt.load("again @README.md", old)
        await until(pilot, lambda: "gone.py" in app.chips())
        await send(app, pilot)
        app.prompt.load("again", old[:1])
        await pilot.press("home", "backspace")
        await send(app, pilot)

    app = play(root, script)
    assert [(one.path, one.text) for one in app.sent[0][1]] == [
        ("gone.py", "old"),
        ("README.md", "# Read me\n"),
    ]
    assert app.sent[1] == ("again", ())


def test_a_message_that_cannot_be_shown_is_loaded_as_a_placeholder(root: Path) -> None:
    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.prompt.load("evil\u202etxt\x1b[0m")
        await pilot.press("x")
        assert app.area.text == "[Pasted text #1, 12 characters]x"
        assert await send(app, pilot) == "evil\u202etxt\x1b[0mx"

    play(root, script)


def test_markup_in_names_and_texts_is_text(root: Path) -> None:
    (root / "[red]x[").write_text("x")

    async def script(app: Host, pilot: Pilot[None]) -> None:
        await type_in(app, pilot, "@[red")
        await until(pilot, app.rows)
        assert app.rows() == ["[red]x["]
        await pilot.press("tab")
        await until(pilot, app.chips)
        assert app.chips().startswith(" [red]x[ 1 token ")

    play(root, script)


def test_thousands_of_pasted_lines_stay_editable(root: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(5000))

    async def script(app: Host, pilot: Pilot[None]) -> None:
        app.paste(text)
        await pilot.press("ctrl+o", "x")
        assert app.area.text == text + "x"
        assert app.area.size.height <= 10
        assert await send(app, pilot) == text + "x"

    play(root, script)


@given(st.integers(1, 80), st.integers(0, 30), st.booleans(), st.booleans())
def test_the_line_being_written_is_always_in_sight(
    screen: int, rows: int, notice: bool, files: bool
) -> None:
    share = shares(screen, popup_rows=rows, notice=notice, files=files)
    frame = 2 if share.has_frame else 0
    assert share.area >= 1 + frame
    assert share.area + share.popup + share.notice + share.files <= max(2, screen // 2)
    assert bool(share.popup) == bool(rows)
    if screen >= 24 and not rows:
        assert (share.notice > 0, share.files > 0) == (notice, files)
    if screen >= 24 and not rows and not notice and not files:
        assert share.area == 8 + frame


# Pictures


async def with_popup(app: Host, pilot: Pilot[None]) -> None:
    await type_in(app, pilot, "explain @r")
    await until(pilot, app.rows)


async def with_chips(app: Host, pilot: Pilot[None]) -> None:
    app.terminal("what is wrong in @src/app.py:3-20 and @.env ?")
    app.paste(LARGE)
    await until(pilot, lambda: "prompt" in app.chips() and app.notice())


async def with_commands(app: Host, pilot: Pilot[None]) -> None:
    await type_in(app, pilot, "/t")
    await pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (40, 12)], ids=["80", "40"])
@pytest.mark.parametrize("state", [with_popup, with_chips, with_commands])
def test_picture(
    snap_compare: Callable[..., bool], root: Path, state: Play, size: tuple[int, int]
) -> None:
    app = Host(root)

    async def before(pilot: Pilot[None]) -> None:
        app.query_one(TextArea).cursor_blink = False
        await state(app, pilot)
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=before)
