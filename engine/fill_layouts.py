"""Fill-in-the-middle prompts as data: which markers, in which order, and how other files join in.

A layout is chosen by the vocabulary alone: all its markers must exist as one id each. A model's
name is never looked at, because conversions rename models and keep vocabularies. This module turns
a prompt into pieces, markers and texts apart; turning them into ids is `text.py`'s work, so that a
user's text which spells a marker stays text.

Invariant: the pieces of one prompt contain its prefix and its suffix exactly once, unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.protocol import FillPrompt


class Piece(Struct, frozen=True, kw_only=True):
    """A part of a prompt: a marker that becomes one id, or a text that never becomes one."""

    text: str
    marker: bool = False
    joined: bool = True
    """A text that continues what stands before it: no word-initial space may be put in front."""


class RepoLayout(Struct, frozen=True, kw_only=True):
    """How files of one repository follow each other in training data that knows their names."""

    separator: str
    name: str | None = None
    path_inside: bool = False
    """The path of the file with the hole stands after the prefix marker, and no line breaks
    are added around files."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Every marker this layout needs."""
        return (self.separator,) if self.name is None else (self.name, self.separator)


class FillLayout(Struct, frozen=True, kw_only=True):
    """One family's way to show a hole."""

    prefix: str
    suffix: str
    middle: str | None
    """None when nothing stands between the last text and the answer."""
    order: Literal["psm", "spm"] = "psm"
    """Prefix, suffix, middle; or suffix first."""
    ends: tuple[str, ...] = ()
    """Further markers that end a fill, where the vocabulary has them."""
    repos: tuple[RepoLayout, ...] = ()
    """Ways to show other files with markers, the first one that the vocabulary has is used."""
    header: str = "{comment} {path}\n"
    """Stands before each file, as plain text, when no way with markers is left."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The markers that must exist."""
        return tuple(m for m in (self.prefix, self.suffix, self.middle) if m is not None)


_QWEN_REPO = RepoLayout(name="<|repo_name|>", separator="<|file_sep|>")
_GEMMA_REPO = RepoLayout(separator="<|file_separator|>")
_STARCODER2_REPO = RepoLayout(name="<repo_name>", separator="<file_sep>", path_inside=True)

FILL_LAYOUTS: tuple[FillLayout, ...] = (
    FillLayout(  # Qwen2.5-Coder, Qwen3-Coder; CodeGemma; Granite 4 (no repository markers)
        prefix="<|fim_prefix|>",
        suffix="<|fim_suffix|>",
        middle="<|fim_middle|>",
        ends=("<|fim_pad|>", "<|filename|>", "<|reponame|>", "<|cursor|>"),
        repos=(_QWEN_REPO, _GEMMA_REPO),
    ),
    FillLayout(  # StarCoder, StarCoder2, Granite Code, CodeQwen1.5
        prefix="<fim_prefix>",
        suffix="<fim_suffix>",
        middle="<fim_middle>",
        ends=("<fim_pad>", "<filename>", "<reponame>", "<gh_stars>"),
        repos=(_STARCODER2_REPO,),
    ),
    FillLayout(  # SantaCoder
        prefix="<fim-prefix>", suffix="<fim-suffix>", middle="<fim-middle>", ends=("<fim-pad>",)
    ),
    FillLayout(  # DeepSeek-Coder, V1 and V2
        prefix="<｜fim▁begin｜>",
        suffix="<｜fim▁hole｜>",
        middle="<｜fim▁end｜>",
        header="#{path}\n",
    ),
    FillLayout(  # CodeLlama, as its sentencepiece vocabulary spells the markers
        prefix="▁<PRE>", suffix="▁<SUF>", middle="▁<MID>", ends=("▁<EOT>",)
    ),
    FillLayout(prefix="<PRE>", suffix="<SUF>", middle="<MID>", ends=("<EOT>",)),
    FillLayout(  # Codestral
        prefix="[PREFIX]",
        suffix="[SUFFIX]",
        middle=None,
        order="spm",
        ends=("[MIDDLE]",),
        header="+++++ {path}\n",
    ),
    FillLayout(  # Seed-Coder
        prefix="<[fim-prefix]>", suffix="<[fim-suffix]>", middle="<[fim-middle]>", order="spm"
    ),
    FillLayout(  # GLM-4, CodeGeeX4
        prefix="<|code_prefix|>",
        suffix="<|code_suffix|>",
        middle="<|code_middle|>",
        ends=("<|cursor|>",),
    ),
)

FILL_MARKERS: frozenset[str] = frozenset(
    marker
    for layout in FILL_LAYOUTS
    for group in (layout.markers, layout.ends, *(repo.markers for repo in layout.repos))
    for marker in group
)
"""Every marker of every layout."""

_UNNAMED = "untitled"
_REPOSITORY = "project"  # a fill does not say which repository it belongs to; the slot needs a word
_SLASHES = frozenset({
    "c", "cpp", "csharp", "dart", "go", "java", "javascript", "javascriptreact", "kotlin", "php",
    "rust", "scala", "swift", "typescript", "typescriptreact", "zig",
})  # fmt: skip
_DASHES = frozenset({"ada", "haskell", "lua", "sql"})


def choose_layout(has: Callable[[str], bool]) -> FillLayout | None:
    """The layout of the vocabulary for which `has` tells whether a text is one id.

    Its `repos` is cut down to the one that can be used, or to none. None without any layout.
    """
    for layout in FILL_LAYOUTS:
        if all(map(has, layout.markers)):
            usable = tuple(repo for repo in layout.repos if all(map(has, repo.markers)))
            return msgspec.structs.replace(layout, repos=usable[:1])
    return None


def needed_markers(layout: FillLayout) -> tuple[str, ...]:
    """Every marker that `fill_pieces` may put into a prompt."""
    return layout.markers + tuple(m for repo in layout.repos for m in repo.markers)


def fill_pieces(layout: FillLayout, prompt: FillPrompt) -> tuple[Piece, ...]:
    """The prompt in the layout's order; snippets, if any, before the hole's own file."""
    lead: list[Piece] = []
    prefix = prompt.prefix
    if prompt.snippets and layout.repos:
        lead, opening = _repository(layout.repos[0], prompt)
        prefix = opening + prefix
    elif prompt.snippets:
        prefix = _headed(layout.header, prompt) + prefix
    before = (_marker(layout.prefix), Piece(text=prefix, joined=False))
    after = (_marker(layout.suffix), Piece(text=prompt.suffix))
    body = before + after if layout.order == "psm" else after + before
    middle = () if layout.middle is None else (_marker(layout.middle),)
    return tuple(p for p in (*lead, *body, *middle) if p.text)


def _repository(repo: RepoLayout, prompt: FillPrompt) -> tuple[list[Piece], str]:
    """The pieces before the hole's prefix marker, and the text to put right after it."""
    end = "" if repo.path_inside else "\n"
    pieces: list[Piece] = []
    if repo.name is not None:
        pieces += [_marker(repo.name), Piece(text=_REPOSITORY + end)]
    for snippet in prompt.snippets:
        text = snippet.text if repo.path_inside else _ended(snippet.text)
        pieces += [_marker(repo.separator), Piece(text=f"{snippet.path}\n{text}")]
    pieces.append(_marker(repo.separator))
    if repo.name is None:
        del pieces[0]  # without a repository's name the marker stands only between files
    path = f"{prompt.path or _UNNAMED}\n"
    if repo.path_inside:
        return pieces, path
    return [*pieces, Piece(text=path)], ""


def _headed(header: str, prompt: FillPrompt) -> str:
    comment = _comment(prompt.language)
    parts = [
        header.format(comment=comment, path=s.path) + _ended(s.text) + "\n" for s in prompt.snippets
    ]
    return "".join(parts) + header.format(comment=comment, path=prompt.path or _UNNAMED)


def _comment(language: str | None) -> str:
    name = (language or "").lower()
    return "//" if name in _SLASHES else "--" if name in _DASHES else "#"


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _marker(text: str) -> Piece:
    return Piece(text=text, marker=True)
