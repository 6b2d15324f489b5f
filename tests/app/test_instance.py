"""One place per user: who may enter it, who holds it, and what a dead one leaves behind."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app import instance
from app.instance import AlreadyRunningError, Place, claimed, place_of, prepare
from engine.protocol import PROTOCOL_VERSION, EngineError

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from pathlib import Path
from app import instance
with instance.claimed(instance.place_of(Path(sys.argv[1]))) as (bound, record):
    bound.listen()
    print("held", flush=True)
    time.sleep(60)
"""


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_of(tmp_path / "run")


def holder(place: Place) -> subprocess.Popen[str]:
    """Another process that holds the place and listens there."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(place.folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_asking_for_the_place_creates_nothing(place: Place) -> None:
    assert not instance.is_held(place)
    assert not instance.listening(place)
    assert instance.read_record(place) is None
    assert not place.folder.exists()


def test_everything_is_for_the_user_alone_even_before_it_listens(place: Place) -> None:
    before = os.umask(0)
    try:
        with claimed(place) as (bound, record):
            assert place.socket is not None
            assert mode_of(place.folder) == 0o700
            assert mode_of(place.socket) == 0o600
            assert stat.S_ISSOCK(place.socket.lstat().st_mode)
            for file in (place.lock, place.record):
                assert mode_of(file) == 0o600
            assert not instance.listening(place)
            bound.listen()
            assert instance.listening(place)
            assert record == instance.read_record(place)
            assert (record.pid, record.protocol) == (os.getpid(), PROTOCOL_VERSION)
    finally:
        os.umask(before)
    assert not place.record.exists()
    assert not place.socket.exists()
    assert not instance.is_held(place)


def test_a_folder_that_others_could_read_is_closed_to_them(place: Place) -> None:
    place.folder.mkdir(mode=0o755)
    prepare(place)
    assert mode_of(place.folder) == 0o700


def test_a_link_where_the_folder_should_be_is_refused(place: Place, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    place.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EngineError, match="no folder of yours") as caught:
        prepare(place)
    assert "SSPEC_ASSIST_RUNTIME" in caught.value.hint


def test_a_folder_under_one_that_all_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(EngineError, match="others may change"):
        prepare(place_of(tmp_path / "open" / "run"))
    (tmp_path / "open").chmod(0o1777)  # as /tmp is: there nobody can replace what is another's
    prepare(place_of(tmp_path / "open" / "run"))


def test_a_folder_that_cant_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="can't be used") as caught:
        prepare(place_of(tmp_path / "file" / "run"))
    assert caught.value.code == "runtime_unusable"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(errno.ENOSPC, "disk_full", "Free some space"), (errno.EROFS, "runtime_unusable", "right to")],
)
def test_what_the_disk_refuses_is_a_sentence(
    tmp_path: Path, number: int, code: str, said: str
) -> None:
    with pytest.raises(EngineError) as caught, instance.sentences(tmp_path):
        raise OSError(number, os.strerror(number))
    assert caught.value.code == code
    assert os.strerror(number) in caught.value.message
    assert said in caught.value.hint


def test_a_folder_where_the_socket_belongs_is_named(place: Place) -> None:
    assert place.socket is not None
    place.socket.mkdir(parents=True)
    with pytest.raises(EngineError) as caught, claimed(place):
        pass
    assert str(place.socket) in caught.value.message
    assert "Remove what is in the way" in caught.value.hint


def test_a_long_path_gets_a_short_socket_of_its_own(tmp_path: Path) -> None:
    place, other = place_of(tmp_path / ("long" * 30)), place_of(tmp_path / ("long" * 31))
    assert place.socket is not None
    assert place.socket != other.socket
    assert len(os.fsencode(place.socket)) <= instance.MAX_SOCKET_PATH_BYTES
    with claimed(place) as (bound, _):
        bound.listen()
        assert instance.listening(place)
        assert mode_of(place.socket.parent) == 0o700
    assert not place.socket.parent.exists()


def test_the_loopback_has_a_token_that_others_cant_read(tmp_path: Path) -> None:
    place = place_of(tmp_path / "run", loopback=True)
    with claimed(place) as (bound, record):
        bound.listen()
        assert bound.getsockname() == ("127.0.0.1", record.port)
        assert len(record.token) >= 32
        assert mode_of(place.record) == 0o600
        assert instance.listening(place)
    assert not instance.listening(place)


def test_the_second_is_told_that_there_is_a_first(place: Place) -> None:
    process = holder(place)
    try:
        assert instance.is_held(place)
        assert instance.listening(place)
        with pytest.raises(AlreadyRunningError), claimed(place, patience_s=0.1):
            raise AssertionError("two hold one place")
        record = instance.read_record(place)
        assert record is not None
        assert record.pid == process.pid
    finally:
        kill(process)


def test_what_a_killed_one_leaves_stops_nobody(place: Place) -> None:
    kill(holder(place))
    assert place.socket is not None
    assert place.socket.exists()
    assert place.record.exists()
    assert not instance.is_held(place)
    assert not instance.listening(place)
    with claimed(place, patience_s=0.1) as (bound, _):
        bound.listen()
        assert instance.listening(place)


def test_a_socket_of_another_program_is_left_alone(place: Place) -> None:
    prepare(place)
    assert place.socket is not None
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(place.socket))
        stranger.listen()
        with pytest.raises(EngineError, match="another program answers"), claimed(place):
            raise AssertionError("the socket was taken")
        assert instance.listening(place)


def test_of_eight_at_once_one_gets_the_place(tmp_path: Path) -> None:
    place = place_of(tmp_path / "run")

    def enter(_: int) -> bool:
        try:
            with claimed(place, patience_s=0.0) as (bound, _record):
                bound.listen()
                release.wait()
                return True
        except AlreadyRunningError:
            with counted:
                losers.append(1)
                if len(losers) == 7:
                    release.set()
            return False

    import threading

    release, counted, losers = threading.Event(), threading.Lock(), list[int]()
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(enter, range(8))) == [False] * 7 + [True]


def test_one_whose_folder_was_emptied_leaves_its_successor_alone(place: Place) -> None:
    """The system removes a user's runtime folder at the last logout, and the process stays."""
    with claimed(place):
        shutil.rmtree(place.folder)
        successor = holder(place)
        try:
            kept = place.record.read_bytes()
        except BaseException:
            kill(successor)
            raise
    try:
        assert place.record.read_bytes() == kept
        assert instance.listening(place)
    finally:
        kill(successor)
