"""The engine as the chat shows it: loading, failing, first run, exchanged; settings; commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList

from engine.protocol import EngineStatus, Failed, LoadProgress, ModelError, SamplingParams
from tests.fakes import STATUS, ScriptedEngine, answer_script
from tests.tui.chat_harness import (
    ask,
    chat,
    on_loop,
    quiet,
    running,
    said,
    screen_of,
    send,
    send_to_wait,
    until,
)
from tui.diff_screen import DiffScreen
from tui.first_run import CatalogueScreen
from tui.fitting import Question
from tui.help_screen import HelpScreen, help_text
from tui.history import History
from tui.messages import EngineGone, SettingsChanged
from tui.name_dialog import NameDialog
from tui.palette import ChatCommands
from tui.settings import ChatSettings, LiveSettings
from tui.terminal_keys import NEWLINE_KEYS
from tui.transcript import Transcript

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
FETCHING = EngineStatus(
    state="loading",
    model="scripted",
    load=LoadProgress(stage="fetching", done=62 * MIB, total=100 * MIB),
)
BROKEN = Failed(code="model_missing", message="there is no model at '[/x]'", hint="Check the path.")


@on_loop
async def test_a_question_sent_while_the_model_loads_is_asked_when_it_is_there(
    tmp_path: Path,
) -> None:
    engine = ScriptedEngine(answer_script("yes"), status=FETCHING)
    async with running(chat(engine, tmp_path)) as pilot:
        screen = screen_of(pilot)
        await send_to_wait(pilot, "are you there?")
        assert str(screen.line.content) == "1 question waits · esc gives the load up"
        assert "loading 62 %" in str(screen.meter.render())
        assert engine.requests == []
        engine.statuses.put_nowait(STATUS)
        await until(pilot, lambda: len(engine.requests) == 1)
        await quiet(pilot)
        assert said(pilot) == [("user", "are you there?"), ("assistant", "yes")]
        assert not screen.line.display


@on_loop
async def test_a_question_that_waits_outlives_its_window(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"), status=FETCHING)
    async with running(chat(engine, tmp_path)) as pilot:
        await send_to_wait(pilot, "are you there?")
        assert screen_of(pilot).asking.talk.history.conversations() == []
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        (kept,) = screen_of(pilot).asking.talk.history.conversations()
        screen_of(pilot).asking.talk.open(kept.id)
        await screen_of(pilot).show_thread()
        assert said(pilot)[0] == ("user", "are you there?")
        await ask(pilot, "/regenerate")
        assert said(pilot) == [("user", "are you there?"), ("assistant", "yes")]


@on_loop
async def test_a_question_that_came_back_is_kept_nowhere_else(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"), status=FETCHING)
    app = chat(engine, tmp_path)
    async with running(app) as pilot:
        await send_to_wait(pilot, "are you there?")
        await pilot.press("escape")
        await quiet(pilot)
    history = History.open(tmp_path / "history.sqlite")
    assert history.conversations() == []
    history.close()


@on_loop
async def test_no_question_overtakes_one_that_waits(tmp_path: Path) -> None:
    """Also when it is sent in the moment in which nothing is in the way of either."""
    engine = ScriptedEngine(answer_script("yes"), status=FETCHING)
    async with running(chat(engine, tmp_path)) as pilot:
        asking = screen_of(pilot).asking
        await send_to_wait(pilot, "first")
        asking.status_changed(STATUS)  # and nobody has looked for what waits yet
        await asking.send(Question(text="second"))
        await quiet(pilot)
        assert [text for kind, text in said(pilot) if kind == "user"] == ["first", "second"]


@on_loop
async def test_a_question_that_waits_is_not_asked_in_another_conversation(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"), status=FETCHING)
    async with running(chat(engine, tmp_path)) as pilot:
        screen = screen_of(pilot)
        await send_to_wait(pilot, "are you there?")
        screen.action_new()
        await until(pilot, lambda: screen.prompt.text == "are you there?")
        engine.statuses.put_nowait(STATUS)
        await until(pilot, lambda: screen.asking.ready)
        await quiet(pilot)
        assert not screen.asking.waiting
    assert engine.requests == []


@on_loop
async def test_a_load_that_another_window_gave_up_is_begun_again_for_what_waits(
    tmp_path: Path,
) -> None:
    asleep = replace(STATUS, state="asleep")
    engine = ScriptedEngine(answer_script("yes"), status=asleep)
    async with running(chat(engine, tmp_path)) as pilot:
        await until(pilot, lambda: engine.models == ["scripted"])
        engine.statuses.put_nowait(FETCHING)
        await until(pilot, lambda: screen_of(pilot).opening.loading)
        await send_to_wait(pilot, "are you there?")
        engine.statuses.put_nowait(asleep)
        await until(pilot, lambda: engine.models == ["scripted"] * 2)
        assert screen_of(pilot).asking.waiting


@on_loop
async def test_escape_gives_a_load_up_and_the_question_comes_back(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"), status=FETCHING)
    async with running(chat(engine, tmp_path)) as pilot:
        await send_to_wait(pilot, "are you there?")
        await pilot.press("escape")
        await quiet(pilot)
        assert engine.stopped == 1
        assert screen_of(pilot).prompt.text == "are you there?"


@on_loop
async def test_a_sleeping_engine_is_woken_at_the_start_and_by_a_question(tmp_path: Path) -> None:
    asleep = replace(STATUS, state="asleep")
    engine = ScriptedEngine(answer_script("yes"), status=asleep)
    async with running(chat(engine, tmp_path)) as pilot:
        await until(pilot, lambda: engine.models == ["scripted"])
        engine.statuses.put_nowait(STATUS)
        await until(pilot, lambda: screen_of(pilot).asking.ready)
        engine.statuses.put_nowait(asleep)
        await until(pilot, lambda: not screen_of(pilot).asking.ready)
        await pilot.pause()
        assert engine.models == ["scripted"]
        await send(pilot, "wake up")
        await until(pilot, lambda: engine.models == ["scripted", "scripted"])


@on_loop
async def test_a_model_that_cannot_be_used_is_told_in_the_engine_s_words(tmp_path: Path) -> None:
    status = replace(STATUS, state="failed", failure=BROKEN)
    engine = ScriptedEngine(answer_script("yes"), status=status)
    async with running(chat(engine, tmp_path)) as pilot:
        line = screen_of(pilot).line
        await until(pilot, lambda: line.has_class("-failed"))
        assert str(line.content) == "there is no model at '[/x]'. Check the path."


@on_loop
async def test_a_question_comes_back_when_the_model_cannot_be_loaded(tmp_path: Path) -> None:
    class Choosy(ScriptedEngine):
        async def use_model(self, name: str) -> None:
            await super().use_model(name)
            if name != "scripted" or len(self.models) > 1:
                raise ModelError("model_unknown", f"there is no model called '{name}'", "")

    engine = Choosy(answer_script("yes"), status=replace(STATUS, state="asleep"))
    async with running(chat(engine, tmp_path)) as pilot:
        await until(pilot, lambda: engine.models == ["scripted"])
        await ask(pilot, "/model other")
        screen_of(pilot).prompt.load("are you there?")
        await pilot.press("enter")
        await until(pilot, lambda: len(engine.models) == 3)
        await quiet(pilot)
        assert engine.models == ["scripted", "other", "scripted"]
        assert screen_of(pilot).prompt.text == "are you there?"
        engine.statuses.put_nowait(FETCHING)
        await until(pilot, lambda: screen_of(pilot).opening.loading)
        await send_to_wait(pilot, "now?")
        engine.statuses.put_nowait(replace(STATUS, state="failed", failure=BROKEN))
        await until(pilot, lambda: screen_of(pilot).prompt.text == "now?")


@on_loop
async def test_after_a_change_that_failed_the_model_before_is_the_wanted_one(
    tmp_path: Path,
) -> None:
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "/model other")
        engine.statuses.put_nowait(replace(FETCHING, model="other"))
        await until(pilot, lambda: screen_of(pilot).opening.loading)
        engine.statuses.put_nowait(
            replace(STATUS, failure=BROKEN, notice="other was not loaded. scripted is back.")
        )
        await until(pilot, lambda: screen_of(pilot).asking.ready)
        assert said(pilot)[-1] == ("information", "other was not loaded. scripted is back.")
        engine.statuses.put_nowait(replace(STATUS, state="asleep"))
        await until(pilot, lambda: not screen_of(pilot).asking.ready)
        await send(pilot, "wake up")
        await until(pilot, lambda: engine.models == ["other", "scripted"])


@on_loop
async def test_without_a_model_the_catalogue_is_offered_and_nothing_fetched_unasked(
    tmp_path: Path,
) -> None:
    engine = ScriptedEngine(answer_script("yes"), status=replace(STATUS, state="asleep"))
    async with running(chat(engine, tmp_path, model="absent-7b")) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, CatalogueScreen))
        options = pilot.app.screen.query_one(OptionList)
        shown = [str(options.get_option_at_index(n).prompt) for n in range(options.option_count)]
        assert shown == [
            "scripted\n  94 MiB · Apache-2.0 · here",
            "absent-7b\n  4.1 GiB · MIT · to be fetched · chosen by the settings",
        ]
        await pilot.press("escape")
        await quiet(pilot)
        assert engine.models == []
        assert said(pilot) == [("information", "No model was chosen. /model asks again.")]
        await send(pilot, "a question")
        await until(pilot, lambda: isinstance(pilot.app.screen, CatalogueScreen))
        await pilot.press("escape")
        await quiet(pilot)
        assert engine.models == []
        assert screen_of(pilot).prompt.text == "a question"
        await send(pilot, "/model")
        await until(pilot, lambda: isinstance(pilot.app.screen, CatalogueScreen))
        await pilot.press("enter")
        await until(pilot, lambda: engine.models == ["absent-7b"])
        engine.statuses.put_nowait(FETCHING)
        await until(pilot, lambda: screen_of(pilot).opening.loading)


@on_loop
async def test_a_watch_that_broke_off_is_taken_up_again_by_the_next_question(
    tmp_path: Path,
) -> None:
    class Watched(ScriptedEngine):
        watches = 0

        def watch(self):  # type: ignore[no-untyped-def, override]
            self.watches += 1
            return super().watch()

    engine = Watched(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        screen_of(pilot).post_message(EngineGone(BROKEN))
        await until(pilot, lambda: bool(said(pilot)))
        await ask(pilot, "anything")
        assert engine.watches == 2
        assert said(pilot)[-1] == ("assistant", "yes")


@on_loop
async def test_changed_settings_hold_from_the_next_answer_on(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        screen = screen_of(pilot)
        settings = LiveSettings(
            chat=ChatSettings(theme="nord", provenance=True, details=True),
            sampling=SamplingParams(temperature=0.5),
            route="copy",
        )
        screen.post_message(SettingsChanged(settings, "Settings taken over: chat.theme."))
        await until(pilot, lambda: screen.transcript.provenance)
        await ask(pilot, "anything")
        assert pilot.app.theme == "nord"
        assert screen.details.display
        assert (engine.requests[0].sampling.temperature, engine.requests[0].route) == (0.5, "copy")
        screen.post_message(SettingsChanged(None, "The settings stay as they were: [/x]"))
        await until(pilot, lambda: said(pilot)[-1][1].endswith("[/x]"))


@on_loop
async def test_a_changed_setting_leaves_alone_what_the_user_chose_in_the_chat(
    tmp_path: Path,
) -> None:
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        screen = screen_of(pilot)
        await ask(pilot, "/temperature 0.7")
        await ask(pilot, "/route copy")
        await pilot.press("ctrl+t", "f3")
        await quiet(pilot)
        changed = LiveSettings(
            chat=ChatSettings(theme="nord"), sampling=SamplingParams(max_tokens=77)
        )
        screen.post_message(SettingsChanged(changed, "Settings taken over."))
        await until(pilot, lambda: pilot.app.theme == "nord")
        await ask(pilot, "anything")
        sampling = engine.requests[0].sampling
        assert (sampling.temperature, sampling.max_tokens) == (0.7, 77)
        assert engine.requests[0].route == "copy"
        assert screen.transcript.provenance
        assert screen.details.display


@on_loop
async def test_an_unknown_theme_is_told_with_the_nearest(tmp_path: Path) -> None:
    settings = LiveSettings(chat=ChatSettings(theme="nrd"))
    async with running(chat(ScriptedEngine([]), tmp_path, settings=settings)) as pilot:
        told = [one.message for one in pilot.app._notifications]
    assert told == ["there is no theme called 'nrd'. Did you mean nord?"]


@on_loop
async def test_sampling_commands_change_the_next_request(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        for command in ("/temperature 0.3", "/top-k 5", "/seed 7", "/max-tokens 9", "/k 3"):
            await ask(pilot, command)
        await ask(pilot, "/system be brief")
        await ask(pilot, "say")
        await ask(pilot, "/stats")
        last = said(pilot)[-1][1]
    request = engine.requests[0]
    assert request.sampling == SamplingParams(temperature=0.3, top_k=5, seed=7, max_tokens=9)
    assert request.k == 3
    assert request.prompt.turns[0].content == "be brief"  # type: ignore[union-attr]
    assert last.startswith("last answer: 1 tokens")


@on_loop
async def test_code_is_applied_after_a_look_and_taken_back(tmp_path: Path) -> None:
    code = "here:\n\n```python\ndef add(a, b):\n    return a + b\n```\n"
    engine = ScriptedEngine(answer_script(code))
    app = chat(engine, tmp_path)
    file = tmp_path / "work" / "calc.py"
    file.write_bytes(b"def add(a, b):\r\n    return a - b\r\n")
    async with running(app) as pilot:
        await ask(pilot, "fix @calc.py please")
        transcript = screen_of(pilot).transcript
        transcript.focus()
        await pilot.press("up", "enter")
        await until(pilot, lambda: pilot.app.screen is not app.chat)
        await pilot.press("end", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, NameDialog))
        assert pilot.app.screen.query_one(Input).value == "calc.py"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, DiffScreen))
        await pilot.pause(0.6)
        await pilot.press("y")
        await quiet(pilot)
        assert file.read_bytes() == b"def add(a, b):\r\n    return a + b\r\n"
        await ask(pilot, "/undo")
        assert file.read_bytes() == b"def add(a, b):\r\n    return a - b\r\n"


@on_loop
async def test_code_without_a_file_name_asks_for_one(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("```\nhello\n```"))
    app = chat(engine, tmp_path)
    async with running(app) as pilot:
        await ask(pilot, "write a greeting")
        screen_of(pilot).transcript.focus()
        await pilot.press("up", "enter")
        await until(pilot, lambda: pilot.app.screen is not app.chat)
        await pilot.press("end", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, NameDialog))
        await pilot.press(*"../x", "enter")
        await quiet(pilot)
        assert said(pilot)[-1][0] == "error"
    assert not (tmp_path / "x").exists()


@on_loop
async def test_an_export_never_replaces_a_file(tmp_path: Path) -> None:
    app = chat(ScriptedEngine(answer_script("yes")), tmp_path)
    async with running(app) as pilot:
        await ask(pilot, "What is / this: [x]?")
        await ask(pilot, "/export")
        await ask(pilot, "/export")
        await ask(pilot, "/export what-is-this-x.md")
        kinds = [kind for kind, _ in said(pilot)]
    names = sorted(file.name for file in (tmp_path / "work").iterdir())
    assert names == ["what-is-this-x-2.md", "what-is-this-x.md"]
    assert kinds[2:] == ["information", "information", "error"]
    assert "yes" in (tmp_path / "work" / names[0]).read_text(encoding="utf-8")


@on_loop
async def test_an_export_may_go_to_the_user_s_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "mine"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    async with running(chat(ScriptedEngine(answer_script("yes")), tmp_path)) as pilot:
        await ask(pilot, "anything")
        await ask(pilot, "/export ~/notes.md")
        await ask(pilot, "/export ~nobody-of-that-name/notes.md")
        assert said(pilot)[-1][0] == "error"
    assert "yes" in (home / "notes.md").read_text(encoding="utf-8")


@on_loop
async def test_a_new_conversation_and_back_to_the_old_one(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        await ask(pilot, "the old one")
        await pilot.press("ctrl+n")
        await until(pilot, lambda: said(pilot) == [])
        await quiet(pilot)
        await ask(pilot, "the new one")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: pilot.app.screen is not pilot.app.chat)  # type: ignore[attr-defined]
        await pilot.press(*"old")
        await pilot.pause(0.3)
        await pilot.press("enter")
        await until(pilot, lambda: said(pilot) == [("user", "the old one"), ("assistant", "yes")])
    assert len(engine.requests[1].prompt.turns) == 1  # type: ignore[union-attr]


def test_the_help_has_the_keys_of_messages_and_all_that_begin_a_line() -> None:
    text = help_text().plain
    lines = [line.split() for line in text.splitlines() if line]
    for binding in Transcript.BINDINGS:
        key = binding.key if isinstance(binding, Binding) else binding[0]
        if len(key) == 1:
            assert any(line[0] == key for line in lines), key
    for key in NEWLINE_KEYS:
        assert key in text or "\r" in key


@on_loop
async def test_every_key_is_in_the_help_and_every_screen_fits_the_smallest_size(
    tmp_path: Path,
) -> None:
    app = chat(ScriptedEngine(answer_script("yes " * 300)), tmp_path)
    async with running(app, size=(40, 12)) as pilot:
        await ask(pilot, "talk")
        screen = screen_of(pilot)
        assert screen.meter.region.height == 1
        assert screen.transcript.region.height >= 4
        await pilot.press("f3")
        await pilot.pause()
        assert screen.prompt.region.bottom <= 12
        assert screen.transcript.region.height >= 1
        await pilot.press("f3", "f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.screen is app.chat)


@on_loop
async def test_the_palette_shows_the_brackets_of_arguments(tmp_path: Path) -> None:
    async with running(chat(ScriptedEngine([]), tmp_path)) as pilot:
        palette = ChatCommands(pilot.app.screen)
        found = [hit async for hit in palette.discover()]
        titles = [str(Content.from_markup(hit.prompt)) for hit in found]  # type: ignore[arg-type]
        assert "/model [name]" in titles
        assert '/stop ["text" …|none]' in titles
        searched = [hit async for hit in palette.search("model")]
        shown = [Content.from_markup(hit.prompt) for hit in searched]  # type: ignore[arg-type]
        wanted = next(one for one in shown if one.plain == "/model [name]")
        marked = "".join(wanted.plain[span.start : span.end] for span in wanted.spans)
        assert marked == "model"


@on_loop
async def test_the_palette_runs_what_is_found_in_it(tmp_path: Path) -> None:
    engine = ScriptedEngine(answer_script("yes"))
    async with running(chat(engine, tmp_path)) as pilot:
        await pilot.press("ctrl+k")
        await until(pilot, lambda: pilot.app.screen is not pilot.app.chat)  # type: ignore[attr-defined]
        await pilot.press(*"provenance")
        await pilot.pause(0.5)
        await pilot.press("enter")
        await until(pilot, lambda: screen_of(pilot).transcript.provenance)


def test_the_chat_is_imported_without_the_engine_s_weight_or_http() -> None:
    probe = (
        "import sys, tui.chat_app, app.chat; print(*[name for name in "
        "('torch', 'transformers', 'httpx', 'watchdog', 'uvicorn', 'huggingface_hub') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
