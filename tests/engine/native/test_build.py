"""Building: once, whole or not at all, and a reason in words where it can't be."""

from __future__ import annotations

import os
import time
from pathlib import Path

from engine.native.build import LIBRARIES_KEPT, native_kernels, sources_digest
from engine.native.suitable import compilers_here


def test_what_was_built_is_used_again(kernels_folder: Path, native: object) -> None:
    compiled: list[str] = []
    assert native_kernels(kernels_folder, lambda: compiled.append("now")).native is not None
    assert not compiled


def test_a_damaged_library_is_built_anew(
    kernels_folder: Path, native: object, tmp_path: Path
) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    for whole in kernels_folder.glob("*.so"):
        (folder / whole.name).write_bytes(whole.read_bytes()[:1000])
    compiled: list[str] = []
    built = native_kernels(folder, lambda: compiled.append("now"))
    assert built.native is not None, built.reason
    assert compiled == ["now"]
    assert all(file.suffix == ".so" for file in folder.iterdir()), "nothing else is left behind"


def test_old_libraries_are_forgotten_and_the_new_one_stays(
    kernels_folder: Path, native: object, tmp_path: Path
) -> None:
    (whole, *_) = kernels_folder.glob(f"pass-{sources_digest()}-*.so")
    folder = tmp_path / "kernels"
    folder.mkdir()
    others = [folder / f"pass-{at:016x}-{at:016x}.so" for at in range(LIBRARIES_KEPT + 2)]
    for at, other in enumerate(others):
        other.write_bytes(b"of another version")
        os.utime(other, (1e9 - at, 1e9 - at))
    script = f'while [ "$1" != -o ]; do shift; done; cp \'{whole}\' "$2"'
    built = native_kernels(folder, compilers=lambda: [("sh", "-c", script, "cc")])
    assert built.native is not None, built.reason
    newest = [one.name for one in others[: LIBRARIES_KEPT - 1]]
    assert sorted(one.name for one in folder.iterdir()) == sorted([whole.name, *newest])
    assert native_kernels(folder, compilers=list).native is not None


def test_without_a_compiler_the_reason_names_the_remedy(tmp_path: Path) -> None:
    built = native_kernels(tmp_path / "kernels", compilers=list)
    assert built.native is None
    assert "pip install ziglang" in built.reason


def test_the_next_compiler_is_tried_when_one_fails(tmp_path: Path) -> None:
    broken, sound = ("false",), compilers_here()[0]
    built = native_kernels(tmp_path / "kernels", compilers=lambda: [broken, sound])
    assert built.native is not None, built.reason
    built = native_kernels(tmp_path / "others", compilers=lambda: [broken])
    assert built.reason == "the compiler failed: exit status 1"


def test_a_folder_that_can_not_be_written_is_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    built = native_kernels(file / "kernels")
    assert built.native is None
    assert "can't be built" in built.reason


def test_a_compiler_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    hanging = ("sh", "-c", f"(sleep 1; touch '{mark}') & sleep 300", "cc")
    folder, began = tmp_path / "kernels", time.monotonic()
    built = native_kernels(folder, compilers=lambda: [hanging, hanging], limit_s=0.3)
    assert built.native is None
    assert "too long" in built.reason or "longer than" in built.reason
    assert time.monotonic() - began < 10
    assert not list(folder.iterdir())
    time.sleep(1.2)
    assert not mark.exists()


def test_what_a_compiler_leaves_is_not_kept_unless_it_loads(tmp_path: Path) -> None:
    script = 'while [ "$1" != -o ]; do shift; done; echo junk > "$2"'
    junk = ("sh", "-c", script, "cc")
    folder = tmp_path / "kernels"
    built = native_kernels(folder, compilers=lambda: [junk])
    assert "can't be loaded" in built.reason
    assert not list(folder.iterdir())
    built = native_kernels(folder, compilers=lambda: [junk, compilers_here()[0]])
    assert built.native is not None, built.reason
