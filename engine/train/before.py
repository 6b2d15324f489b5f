"""The head that was there when a course began: the user's own, else the one that ships.

Owns where it is found and what its path asks of the answers that are judged. It judges nothing.

Invariant: what is read fits the model's weights, or there is no head and a sentence that says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from engine.draft.head_file import SHIPPED, HeadAbout, heads_for, read_head
from engine.families import Architecture
from engine.protocol import ModelError
from engine.train.samples import Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """A head as its file has it."""

    file: Path
    about: HeadAbout
    tensors: Mapping[str, Tensor]

    def added_to(self, marks: Marks) -> Marks:
        """The layers of its path too, so that it is judged like any other."""
        return replace(
            marks,
            firsts=tuple(sorted({*marks.firsts, self.about.first})),
            jumps=tuple(sorted({*marks.jumps, self.about.jump})),
        )


def head_before(
    own: Path, digest: str, arch: Architecture, *, shipped: Path = SHIPPED
) -> tuple[Before | None, str]:
    """The head in the file `own`, else the one in the folder `shipped`; and what is wrong with a
    file that can't be read."""
    files = [*([own] if own.is_file() else []), *heads_for(digest, None, shipped=shipped)]
    wrong = ""
    for file in files:
        try:
            about, tensors = read_head(file, digest, arch)
        except ModelError as error:
            wrong = f"the head that was there is made anew: {error.message}"
        else:
            return Before(file=file, about=about, tensors=tensors), wrong
    return None, wrong
