"""Fills and edits cut from a user's files, or from the standard library's where there are none.

Which files may be read is `project_files`' business: ignored and secret ones are not. Owns where a
hole is cut and how much stands around it. Invariant: the same files and seed give the same prompts.
"""

from __future__ import annotations

import random
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.project_files.tree import Limits, ProjectTree
from engine.protocol import ChatPrompt, FillPrompt, Turn

SUFFIXES = frozenset({
    ".py", ".js", ".jsx", ".ts", ".tsx", ".go", ".rs", ".java", ".c", ".h", ".cc", ".cpp", ".hpp",
    ".cs", ".rb", ".php", ".kt", ".swift", ".sh", ".sql", ".html", ".css", ".scss", ".lua",
    ".scala", ".toml", ".yaml", ".yml", ".md",
})  # fmt: skip
MAX_FILES = 400
MAX_BYTES = 200_000
BEFORE_CHARS, AFTER_CHARS = 900, 400
"""Text around a hole: about 350 tokens."""
_HOLE_LINES = (1, 1, 2, 4, 8, 14)
_EDITS = (
    "Rename `{name}` to `{name}_value` everywhere in this code and return the whole code.",
    "Add a comment to each function in this code and return the whole code.",
    "Add error handling to this code and return the whole code.",
    "Write unit tests for this code.",
    "Explain this code in a few sentences.",
)


def looks_like_project(folder: Path) -> bool:
    """Whether a folder holds code worth cutting prompts from."""
    return next(_sources(folder), None) is not None


def fills_and_edits(
    folder: Path | None, count: int, seed: int = 0
) -> Iterator[FillPrompt | ChatPrompt]:
    """About `count` prompts, four fills to an edit, from `folder` or the standard library."""
    pick = random.Random(seed)
    texts = _texts(folder, pick)
    if not texts:
        return
    for number in range(count):
        path, text = texts[number % len(texts)]
        prompt = _edit(text, path, pick) if number % 5 == 4 else _fill(text, path, pick)
        if prompt is not None:
            yield prompt


def _texts(folder: Path | None, pick: random.Random) -> list[tuple[str, str]]:
    if folder is not None:
        folder = folder.resolve()
        files = list(_sources(folder))
    else:
        library = Path(sysconfig.get_paths()["stdlib"])
        folder, files = library, sorted(library.glob("*.py"))
    pick.shuffle(files)
    found = []
    for file in files[:MAX_FILES]:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if len(text) > 200:
            found.append((file.relative_to(folder).as_posix(), text))
    return found


def _sources(folder: Path) -> Iterator[Path]:
    """The code files of a project, in the order of the walk."""
    tree = ProjectTree(folder, limits=Limits(files=20_000, entries=100_000))
    for listed in tree.walk(threading.Event()):
        for entry in listed.files:
            path = Path(entry.path)
            if path.suffix in SUFFIXES and 0 < entry.stat().st_size <= MAX_BYTES:
                yield path


def _fill(text: str, path: str, pick: random.Random) -> FillPrompt | None:
    lines = text.splitlines(keepends=True)
    size = pick.choice(_HOLE_LINES)
    places = [i for i in range(3, len(lines) - size) if lines[i].strip()]
    if not places:
        return None
    at = pick.choice(places)
    begin, end = sum(map(len, lines[:at])), sum(map(len, lines[: at + size]))
    # As in an editor: the cursor stands after the indentation, or within the line.
    first = lines[at]
    indent = len(first) - len(first.lstrip())
    begin += indent if pick.random() < 0.6 else pick.randrange(indent, max(indent + 1, len(first)))
    end -= len(text[:end]) - len(text[:end].rstrip("\n"))
    return FillPrompt(
        prefix=_from_line(text[:begin][-BEFORE_CHARS:], begin > BEFORE_CHARS),
        suffix=text[max(begin, end) :][:AFTER_CHARS],
        path=path,
    )


def _from_line(text: str, cut: bool) -> str:
    """Without the rest of a line that a cut left."""
    return text.split("\n", 1)[-1] if cut and "\n" in text else text


def _edit(text: str, path: str, pick: random.Random) -> ChatPrompt | None:
    lines = text.splitlines(keepends=True)
    begin = pick.randrange(max(1, len(lines) - 20))
    code = "".join(lines[begin : begin + 20])[:1200]
    names = [word for word in code.replace("(", " ").split() if word.isidentifier()]
    if not names:
        return None
    asked = pick.choice(_EDITS).format(name=pick.choice(names))
    return ChatPrompt(turns=(Turn(role="user", content=f"{asked}\n\n{_fenced(code, path)}"),))


def _fenced(code: str, path: str) -> str:
    return f"{path}\n```\n{code.rstrip()}\n```"


def interleaved(
    chats: Sequence[ChatPrompt], others: Sequence[FillPrompt | ChatPrompt]
) -> list[ChatPrompt | FillPrompt]:
    """Both lists through each other, so that any beginning has a fair share of either."""
    total = len(chats) + len(others)
    placed: list[tuple[float, ChatPrompt | FillPrompt]] = []
    for prompts in (chats, others):
        apart = total / max(1, len(prompts))
        placed += [((i + 0.5) * apart, prompt) for i, prompt in enumerate(prompts)]
    return [prompt for _, prompt in sorted(placed, key=lambda pair: pair[0])]
