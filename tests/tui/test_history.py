"""The conversation store: its tree, its journal, its search, its file, and two windows on it."""

from __future__ import annotations

import hashlib
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol import SamplingParams, Snippet, Usage
from tui.history import History, HistoryError
from tui.history_records import title_of
from tui.history_schema import MIGRATIONS, SCHEMA_VERSION
from tui.history_search import excerpt, match_expression, parse_query, storable

USAGE = Usage(
    prompt_tokens=12,
    cached_tokens=3,
    output_tokens=40,
    prefill_ms=80.0,
    decode_ms=900.5,
    rounds=15,
    drafted=60,
    tested=50,
    accepted=25,
    plain_tokens_per_s=None,
)
TYPED = (
    '"',
    '""',
    '"unclosed',
    "AND",
    "a AND b",
    "NOT x OR (y",
    "NEAR(a b, 2)",
    "content:foo",
    "foo*",
    "^start",
    "-minus",
    "{a b}: c",
    "it's",
    "%",
    "_",
    "\\",
    "a\x00bcd",
    "世",
    "世界",
    "你好世界",
    "👩‍👩‍👧",
    "שלום עולם",
    "\ud800abc",
    "   ",
    "x" * 10_000,
    "w " * 10_000,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history.sqlite"


@pytest.fixture
def history(path: Path):
    opened = History.open(path)
    yield opened
    opened.close()


def said(history: History, *texts: str) -> tuple[int, list[int]]:
    """A conversation of these messages, user and assistant in turn: its id and theirs."""
    conversation = history.create().id
    ids: list[int] = []
    for number, text in enumerate(texts):
        role = "assistant" if number % 2 else "user"
        parent = ids[-1] if ids else None
        ids.append(history.add(conversation, parent, role, text).id)
    return conversation, ids


def raw(path: Path, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def bytes_on_disk(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.iterdir() if file.is_file())


# The tree


def test_a_thread_goes_from_the_first_message_to_the_leaf(history: History) -> None:
    conversation, ids = said(history, "one", "two", "three", "four")
    assert [message.id for message in history.thread(ids[-1])] == ids
    assert [message.id for message in history.thread(ids[1])] == ids[:2]
    assert history.leaf(conversation) == ids[-1]


def test_a_branch_leaves_the_other_one_as_it_was(history: History) -> None:
    conversation, (question, first, *_) = said(history, "q", "a1", "q2", "a2")
    second = history.add(conversation, question, "assistant", "b1").id
    assert history.leaf(conversation) == second
    assert [message.id for message in history.siblings(first)] == [first, second]
    assert [message.content for message in history.thread(second)] == ["q", "b1"]
    assert history.message(history.tip(first)).content == "a2"
    assert history.tip(question) == second


def test_first_messages_are_siblings_too(history: History) -> None:
    conversation, (question, _) = said(history, "q", "a")
    other = history.add(conversation, None, "user", "q, asked differently").id
    said(history, "another conversation's")
    assert [message.id for message in history.siblings(question)] == [question, other]


def test_the_leaf_may_be_before_the_first_message(history: History) -> None:
    conversation, _ = said(history, "q", "a")
    history.set_leaf(conversation, None)
    assert history.leaf(conversation) is None


def test_no_branch_reaches_into_another_conversation(history: History, path: Path) -> None:
    conversation, _ = said(history, "q")
    other, (strange,) = said(history, "r")
    with pytest.raises(HistoryError) as told:
        history.add(conversation, strange, "assistant", "a")
    assert told.value.code == "history_gone"
    with pytest.raises(HistoryError):
        history.set_leaf(conversation, strange)
    assert history.leaf(conversation) != strange
    assert history.leaf(other) == strange


def test_what_is_not_there_is_told_in_a_sentence(history: History) -> None:
    for ask in (
        lambda: history.conversation(99),
        lambda: history.leaf(99),
        lambda: history.message(99),
        lambda: history.thread(99),
        lambda: history.tip(99),
        lambda: history.rename(99, "x"),
        lambda: history.system(99, "x"),
        lambda: history.delete(99),
        lambda: history.journal(99, "x", b""),
        lambda: history.finish(99, "x", "whole", None, b""),
    ):
        with pytest.raises(HistoryError) as told:
            ask()
        assert told.value.code == "history_gone"
    assert history.siblings(99) == []


def test_everything_about_a_message_comes_back(history: History, path: Path) -> None:
    conversation = history.create("be brief").id
    snippets = (Snippet(path="a.py", text="x = '\x00'\r\n"), Snippet(path="ü.py", text=""))
    sampling = SamplingParams(temperature=0.5, stop=("\n\n",), seed=7)
    asked = history.add(conversation, None, "user", "q\r\n\tq", snippets=snippets)
    answer = history.add(
        conversation, asked.id, "assistant", "", state="partial", model="m", sampling=sampling
    )
    assert not answer.greedy
    history.finish(answer.id, "text", "whole", USAGE, b"\x00\x01")
    other = History.open(path)
    assert other.message(asked.id) == asked
    assert asked.snippets == snippets
    found = other.message(answer.id)
    assert (found.content, found.state, found.usage) == ("text", "whole", USAGE)
    assert (found.kinds, found.model, found.sampling) == (b"\x00\x01", "m", sampling)
    assert other.conversation(conversation).system == "be brief"
    other.close()


def test_an_answer_is_greedy_by_its_sampling_or_by_word(history: History) -> None:
    conversation, (question,) = said(history, "q")
    by_sampling = history.add(
        conversation, question, "assistant", "a", sampling=SamplingParams(temperature=0)
    )
    by_word = history.add(conversation, question, "assistant", "a", greedy=True)
    neither = history.add(conversation, question, "assistant", "a")
    assert [by_sampling.greedy, by_word.greedy, neither.greedy] == [True, True, False]


def test_the_first_question_becomes_the_title_until_there_is_another(history: History) -> None:
    conversation, _ = said(history, "\n  why   does\tit fail?\nmore", "a", "and now?")
    assert history.conversation(conversation).title == "why does it fail?"
    history.rename(conversation, " a\nbetter  name ")
    assert history.conversation(conversation).title == "a better name"
    assert title_of("x" * 100) == "x" * 59 + "…"
    assert title_of(" \n ") == ""


def test_conversations_are_listed_latest_first_and_empty_ones_not(path: Path) -> None:
    now = iter(range(1000, 2000))
    history = History.open(path, clock=lambda: float(next(now)))
    first, ids = said(history, "one", "1")
    second, _ = said(history, "two")
    history.create()
    assert [found.id for found in history.conversations()] == [second, first]
    history.add(first, ids[-1], "user", "again")
    assert [(found.id, found.messages) for found in history.conversations()] == [
        (first, 3),
        (second, 1),
    ]
    assert len(history.conversations(limit=1)) == 1
    history.close()


def test_recent_prompts_are_told_once_each_oldest_first(history: History) -> None:
    said(history, "a", "answer", "b", "answer", "a", "answer", "c")
    assert history.recent_prompts(10) == ["b", "a", "c"]
    assert history.recent_prompts(2) == ["a", "c"]
    assert history.recent_prompts(0) == []


def test_lone_surrogates_are_replaced_and_nothing_else_is(history: History) -> None:
    conversation, (question,) = said(history, "a\udcffb 👍 \x00 \u202e")
    assert history.message(question).content == "a\ufffdb 👍 \x00 \u202e"
    history.system(conversation, "\ud800")
    assert history.conversation(conversation).system == "\ufffd"


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_text_that_can_be_encoded_is_stored_as_it_is(text: str) -> None:
    assert storable(text) == text


# Answers in progress


def begun(history: History) -> int:
    conversation, (question,) = said(history, "q")
    return history.add(conversation, question, "assistant", "", state="partial").id


def test_the_journal_writes_only_what_is_new(history: History, path: Path) -> None:
    answer = begun(history)
    text = ""
    for number in range(200):
        text += f"line {number} of the answer, 世界\n"
        history.journal(answer, text, bytes(number))
    assert history.message(answer).content == text
    assert history.message(answer).kinds == bytes(199)
    assert raw(path, "SELECT sum(length(text)), sum(length(kinds)) FROM journal") == [
        (len(text), 199)
    ]
    history.journal(answer, text, bytes(199))
    assert raw(path, "SELECT count(*) FROM journal") == [(200,)]
    history.finish(answer, text, "whole", USAGE, b"k")
    assert raw(path, "SELECT count(*) FROM journal") == [(0,)]


def test_the_journal_follows_a_text_that_does_not_go_on_from_before(history: History) -> None:
    answer = begun(history)
    for text, kinds in (("abcdef", b"12"), ("abX", b"19"), ("abXYZ", b"199"), ("", b"")):
        history.journal(answer, text, kinds)
        found = history.message(answer)
        assert (found.content, found.kinds, found.state) == (text, kinds, "partial")


def test_the_journal_keeps_little_when_only_the_end_changes(history: History, path: Path) -> None:
    answer = begun(history)
    for number in range(1, 100):
        history.journal(answer, "x" * number * 10, b"k" * number * 10 + bytes((number,)))
    (sizes,) = raw(path, "SELECT sum(length(text)), sum(length(kinds)) FROM journal")
    assert sizes == (990, 990 + 99)
    assert history.message(answer).kinds == b"k" * 990 + b"c"


@given(st.lists(st.tuples(st.text("ab", max_size=6), st.binary(max_size=6)), max_size=6))
def test_whatever_is_journalled_last_is_what_is_kept(steps: list[tuple[str, bytes]]) -> None:
    history = History()
    answer = begun(history)
    for text, kinds in steps:
        history.journal(answer, text, kinds)
        found = history.message(answer)
        assert (found.content, found.kinds) == (text, kinds)
    history.close()


def test_a_stopped_answer_can_be_gone_on_with(history: History, path: Path) -> None:
    answer = begun(history)
    history.finish(answer, "half", "partial", None, b"h")
    history.journal(answer, "half and mo", b"hm")
    other = History.open(path)
    assert other.message(answer).content == "half and mo"
    other.close()
    history.finish(answer, "half and more", "whole", USAGE, b"hmm")
    assert history.message(answer).content == "half and more"
    assert [found.id for found in history.conversations("and more")]


def test_closing_keeps_what_came_as_partial(history: History, path: Path) -> None:
    answer = begun(history)
    history.journal(answer, "what came", b"k")
    history.close()
    history.close()
    other = History.open(path)
    found = other.message(answer)
    assert (found.content, found.kinds, found.state) == ("what came", b"k", "partial")
    assert raw(path, "SELECT count(*) FROM messages WHERE owner IS NOT NULL") == [(0,)]
    other.close()


def test_a_living_window_s_answer_is_left_to_it(history: History, path: Path) -> None:
    answer = begun(history)
    history.journal(answer, "so far", b"")
    other = History.open(path)
    assert other.message(answer).content == "so far"
    for take in (
        lambda: other.journal(answer, "mine", b""),
        lambda: other.finish(answer, "mine", "whole", None, b""),
        lambda: other.delete(other.message(answer).conversation),
    ):
        with pytest.raises(HistoryError) as told:
            take()
        assert told.value.code == "history_in_use"
    history.journal(answer, "so far and on", b"")
    history.finish(answer, "so far and on.", "whole", None, b"")
    assert other.message(answer).content == "so far and on."
    other.delete(other.message(answer).conversation)
    with pytest.raises(HistoryError) as told:
        history.journal(answer, "again", b"")
    assert told.value.code == "history_gone"
    other.close()


# Search


def found(history: History, query: str) -> list[str]:
    return [conversation.title for conversation in history.conversations(query)]


@pytest.mark.parametrize("full_text", [True, False], ids=["fts5", "scan"])
def test_a_search_finds_titles_and_text(path: Path, full_text: bool) -> None:
    history = History.open(path, full_text=full_text)
    said(history, "sort a list", "use sorted(items, key=len)")
    said(history, "你好世界", "Größe und ÄPFEL")
    said(history, 'say "quoted" 100%_sure', "it's a\\b")
    expected = {
        "sorted": ["sort a list"],
        "SORTED(ITEMS": ["sort a list"],
        "key=len items": ["sort a list"],
        "sort list": ["sort a list"],
        "orte": ["sort a list"],
        "好世": ["你好世界"],
        "世": ["你好世界"],
        "äpfel": ["你好世界"],
        '"quoted"': ['say "quoted" 100%_sure'],
        "100%_": ['say "quoted" 100%_sure'],
        "%_": ['say "quoted" 100%_sure'],
        "a\\b": ['say "quoted" 100%_sure'],
        "sorted äpfel": [],
        "AND": [],
        "nothing": [],
    }
    assert {query: found(history, query) for query in expected} == expected
    history.close()


@pytest.mark.parametrize("full_text", [True, False], ids=["fts5", "scan"])
def test_nothing_typed_makes_a_search_fail(path: Path, full_text: bool) -> None:
    history = History.open(path, full_text=full_text)
    said(history, "q", "a")
    for query in TYPED:
        assert isinstance(history.conversations(query), list)
    history.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4), st.randoms())
def test_what_was_said_is_found_by_its_parts(texts: list[str], random) -> None:
    history = History()
    conversation, _ = said(history, *texts)
    history.rename(conversation, "")
    kept = storable(texts[0])
    start = random.randrange(len(kept))
    part = kept[start : start + 5]
    words = parse_query(part).words
    assert len(history.conversations(part)) == 1 or not words or "\x00" in kept
    for query in TYPED:
        history.conversations(query)
    history._store.index.check()
    history.close()


@given(st.text())
def test_an_expression_always_parses(text: str) -> None:
    words = parse_query(storable(text)).indexed
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5 (c, tokenize='trigram')")
    if words:
        connection.execute("SELECT * FROM t WHERE t MATCH ?", (match_expression(words),)).fetchall()
    connection.close()


def test_an_excerpt_is_one_line_around_the_hit(history: History) -> None:
    said(history, "q", "start\n" + "x " * 100 + "the Needle\nis here " + "y " * 100)
    (hit,) = history.conversations("needle")
    assert "the Needle is here" in hit.excerpt
    assert hit.excerpt.startswith("…")
    assert hit.excerpt.endswith("…")
    assert "\n" not in hit.excerpt
    assert excerpt("short", ("o",)) == "short"
    (by_title,) = history.conversations("q")
    assert by_title.excerpt == "q"


def test_a_journalled_answer_is_found_once_it_is_over(history: History) -> None:
    answer = begun(history)
    history.journal(answer, "findable words", b"")
    history.finish(answer, "findable words", "whole", None, b"")
    assert found(history, "findable") == ["q"]
    history._store.index.check()


def test_windows_without_fts5_leave_the_others_a_whole_index(path: Path) -> None:
    with_index = History.open(path)
    gone, _ = said(with_index, "soon deleted")
    with_index.close()
    without = History.open(path, full_text=False)
    said(without, "written without an index")
    without.delete(gone)
    without.close()
    with_index = History.open(path)
    assert found(with_index, "without") == ["written without an index"]
    assert found(with_index, "deleted") == []
    with_index._store.index.check()
    with_index.close()


# Deleting


def test_what_is_deleted_is_gone_from_the_file(history: History, path: Path) -> None:
    kept, _ = said(history, "kept question", "kept answer")
    deleted, ids = said(history, "SECRETQUESTION", "SECRETANSWER")
    history.journal(ids[1], "SECRETANSWER goes on", b"")
    history.finish(ids[1], "SECRETANSWER went on", "whole", None, b"")
    assert b"SECRET" in bytes_on_disk(path)
    history.delete(deleted)
    history.wait_for_erasing()
    assert found(history, "SECRETANSWER") == []
    assert [found.id for found in history.conversations()] == [kept]
    history._store.index.check()
    data = bytes_on_disk(path)
    for piece in (b"SECRET", b"secret", b"ecretanswer"):
        assert piece not in data
    # The index keeps trigrams, those that share a beginning next to each other.
    assert b"cre" not in data.replace(b"created", b"")


def test_an_id_never_comes_to_mean_something_else(history: History) -> None:
    conversation, ids = said(history, "q", "a")
    history.delete(conversation)
    again, new_ids = said(history, "q", "a")
    assert again > conversation
    assert min(new_ids) > max(ids)


def test_a_long_thread_can_be_deleted(history: History) -> None:
    conversation, _ = said(history, *["x"] * 1500)
    history.delete(conversation)
    assert history.conversations() == []


def test_erasing_is_taken_up_by_the_next_window(path: Path) -> None:
    history = History.open(path)
    for number in range(30):
        said(history, f"question {number} " + "word " * 200)
    deleted, _ = said(history, "ZEBRAFISH")
    history._store._closing.set()  # As when the window closes just then.
    history.delete(deleted)
    history.close()
    assert raw(path, "SELECT unerased FROM search_state") == [(1,)]
    history = History.open(path)
    history.wait_for_erasing()
    assert raw(path, "SELECT unerased FROM search_state") == [(0,)]
    assert b"zeb" not in bytes_on_disk(path).lower()
    history.close()


# The file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_store_is_for_its_user_alone(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    path.touch(mode=0o644)
    history = History.open(path)
    said(history, "q")
    assert mode(path.parent) == 0o700
    for file in path.parent.rglob("*"):
        assert mode(file) & 0o077 == 0, file
    assert mode(path) == 0o600
    history.close()


def test_a_store_of_version_1_becomes_one_of_today(path: Path) -> None:
    path.parent.mkdir()
    old = sqlite3.connect(path)
    for statement in MIGRATIONS[0]:
        old.execute(statement)
    old.execute("INSERT INTO conversations VALUES (5, 'old title', 'sys', 10.0, 20.0, NULL)")
    old.execute(
        "INSERT INTO messages VALUES (8, 5, NULL, 'user', 'an old question', NULL, 'whole', 11.0,"
        " x'', NULL, 0, NULL)"
    )
    old.execute("UPDATE conversations SET leaf = 8")
    old.execute("PRAGMA user_version = 1")
    old.commit()
    old.close()
    history = History.open(path)
    assert history.leaf(5) == 8
    assert [message.content for message in history.thread(8)] == ["an old question"]
    assert found(history, "old question") == ["old title"]
    history.add(5, 8, "assistant", "a new answer", model="m")
    history.close()
    assert raw(path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    assert raw(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_failed_step_leaves_the_version_as_it_was(path: Path) -> None:
    path.parent.mkdir()
    old = sqlite3.connect(path)
    for statement in MIGRATIONS[0]:
        old.execute(statement)
    old.execute("CREATE TABLE search_state (in_the_way INTEGER)")
    old.execute("PRAGMA user_version = 1")
    old.close()
    with pytest.raises(HistoryError):
        History.open(path)
    assert raw(path, "PRAGMA user_version") == [(1,)]
    assert "model" not in str(raw(path, "SELECT sql FROM sqlite_schema WHERE name = 'messages'"))


@pytest.mark.parametrize("found_version", [SCHEMA_VERSION + 1, 1000])
def test_a_newer_store_is_refused_and_not_touched(path: Path, found_version: int) -> None:
    path.parent.mkdir(mode=0o700)
    newer = sqlite3.connect(path)
    newer.execute("CREATE TABLE of_the_future (x)")
    newer.execute(f"PRAGMA user_version = {found_version}")
    newer.close()
    path.chmod(0o644)
    before = (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns, mode(path))
    with pytest.raises(HistoryError) as told:
        History.open(path)
    assert told.value.code == "history_newer"
    assert str(found_version) in told.value.message
    assert str(SCHEMA_VERSION) in told.value.message
    after = (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns, mode(path))
    assert after == before
    assert list(path.parent.iterdir()) == [path]


def test_a_newer_version_that_only_the_log_tells_is_refused(path: Path) -> None:
    History.open(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA wal_autocheckpoint = 0")
    newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(HistoryError) as told:
        History.open(path)
    assert told.value.code == "history_newer"
    newer.close()


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database, it is a text of some length\n" * 100)


def overwritten(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 : 3 * 4096] = b"\xa5" * (2 * 4096)
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 4096 + 100])


@pytest.mark.parametrize("damage", [garbage, overwritten, cut_short])
def test_a_damaged_file_is_set_aside_and_kept(path: Path, damage) -> None:
    history = History.open(path)
    said(history, *["a question"] * 200)
    history.close()
    damage(path)
    damaged = path.read_bytes()
    history = History.open(path)
    (kept,) = path.parent.glob("history.corrupt-*.sqlite")
    assert kept.read_bytes() == damaged
    assert kept.name in history.notice
    assert history.conversations() == []
    said(history, "goes on")
    history.close()
    history = History.open(path)
    assert history.notice == ""
    assert found(history, "") == ["goes on"]
    history.close()


def test_the_log_of_a_damaged_file_is_kept_with_it(path: Path, tmp_path: Path) -> None:
    killed = History.open(tmp_path / "killed" / "history.sqlite")
    conversation, _ = said(killed, "q")
    killed._store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    killed.rename(conversation, "only in the log")
    path.parent.mkdir()
    log = path.with_name(path.name + "-wal")
    log.write_bytes((tmp_path / "killed" / log.name).read_bytes())
    killed.close()
    garbage(path)
    history = History.open(path)
    assert history.conversations() == []
    kept = b"".join(file.read_bytes() for file in path.parent.glob("history.corrupt-*"))
    assert b"only in the log" in kept
    history.close()


def test_a_second_damaged_file_does_not_replace_the_first(path: Path) -> None:
    for _ in range(3):
        path.parent.mkdir(exist_ok=True)
        garbage(path)
        History.open(path).close()
    assert len(list(path.parent.glob("history.corrupt-*.sqlite"))) == 3


def test_damage_met_in_use_is_told_and_looked_for_at_the_next_opening(path: Path) -> None:
    history = History.open(path)
    _, ids = said(history, *["a question " * 50] * 200)
    history._store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    history._store.connection.execute("PRAGMA cache_size = 0")
    data = bytearray(path.read_bytes())
    data[2 * 4096 :] = b"\xa5" * (len(data) - 2 * 4096)
    path.write_bytes(data)
    with pytest.raises(HistoryError) as told:
        history.thread(ids[-1])
    assert told.value.code == "history_damaged"
    suspect = path.with_name(path.name + ".suspect")
    assert suspect.exists()
    history.close()
    history = History.open(path)
    assert "damaged" in history.notice
    assert not suspect.exists()
    history.close()


def test_a_full_disk_is_told_and_the_answer_goes_on_in_memory(history: History, path: Path) -> None:
    conversation, (question,) = said(history, "q")
    answer = history.add(conversation, question, "assistant", "", state="partial").id
    history.journal(answer, "kept", b"k")
    history._store.connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(HistoryError) as told:
        history.journal(answer, "kept" + "x" * 100_000, b"k")
    assert told.value.code == "history_full"
    assert str(path) in str(told.value)
    assert history.message(answer).content == "kept"
    history.go_on_in_memory()
    history.journal(answer, "kept and more", b"kk")
    history.finish(answer, "kept and more.", "whole", USAGE, b"kkk")
    assert [message.content for message in history.thread(answer)] == ["q", "kept and more."]
    assert found(history, "more") == ["q"]
    history.close()
    other = History.open(path)
    assert (other.message(answer).content, other.message(answer).state) == ("kept", "partial")
    other.close()


def test_a_write_that_is_refused_changes_nothing(history: History, path: Path) -> None:
    conversation, (question,) = said(history, "q")
    history._store.connection.execute("PRAGMA query_only = ON")
    with pytest.raises(HistoryError) as told:
        history.add(conversation, question, "assistant", "", state="partial")
    assert told.value.code == "history_readonly"
    history._store.connection.execute("PRAGMA query_only = OFF")
    assert history.leaf(conversation) == question
    answer = history.add(conversation, question, "assistant", "", state="partial").id
    history.journal(answer, "text", b"")
    assert history.message(answer).content == "text"


def test_where_no_file_can_be_had_the_chat_goes_on_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "history.sqlite"
    with pytest.raises(HistoryError):
        History.open(path)
    history = History.open_or_in_memory(path)
    assert history.notice.startswith("Conversations are not kept: ")
    assert str(path) in history.notice
    _, ids = said(history, "q", "a")
    assert len(history.thread(ids[-1])) == 2
    history.close()


def test_a_store_that_another_window_holds_is_told_as_busy(history: History, path: Path) -> None:
    history._store.connection.execute("PRAGMA busy_timeout = 50")
    conversation, _ = said(history, "q")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(HistoryError) as told:
        history.rename(conversation, "x")
    assert told.value.code == "history_busy"
    assert found(history, "") == ["q"]
    other.execute("ROLLBACK")
    other.close()
    history.rename(conversation, "x")


def test_the_store_waits_for_other_writers_and_erases(history: History) -> None:
    connection = history._store.connection
    told = {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "busy_timeout", "foreign_keys", "secure_delete", "synchronous")
    }
    assert told == {
        "journal_mode": "wal",
        "busy_timeout": 5000,
        "foreign_keys": 1,
        "secure_delete": 1,
        "synchronous": 1,
    }


def test_no_file_stays_behind_a_closed_window(history: History, path: Path) -> None:
    said(history, "q")
    history.close()
    left = {file.name for file in path.parent.rglob("*")}
    assert left == {"history.sqlite", "history.sqlite.opening", "history.windows"}


def test_threads_may_share_a_window(history: History) -> None:
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for turn in range(20):
                said(history, f"{number}:{turn}", "a")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(history.conversations(limit=1000)) == 80
    history._store.index.check()


def test_opening_is_not_held_up_by_what_dead_windows_left(history: History, path: Path) -> None:
    folder = path.with_suffix(".windows")
    (folder / "0123.window").touch()
    History.open(path).close()
    assert [file.name for file in folder.iterdir()] == [f"{history._store.window}.window"]
