"""A conversation as one text: the checkpoint's own chat template, rendered in a sandbox.

Owns what a template may call, how its refusals are told, and how snippets enter the last
question. It knows no token ids. Templates come with the weights, from strangers, so
they see plain strings only and run in jinja2's immutable sandbox; for the same input the text is
the one that transformers renders.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from jinja2 import TemplateError
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from engine.protocol import ChatPrompt, ModelError, RequestError, Snippet, Turn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template, nodes
    from jinja2.parser import Parser


logger = logging.getLogger(__name__)


class _RefusedError(TemplateError):
    """The template's own `raise_exception`."""


class ChatTemplate:
    """One template with the special texts (`bos_token` and so on) that it may name."""

    def __init__(self, source: str, special_texts: Mapping[str, str]) -> None:
        self.source = source
        self._special_texts = dict(special_texts)

    def render(self, turns: Sequence[Turn]) -> str:
        """The conversation as text, ending where the assistant's next message begins.

        Raises `RequestError` when the template refuses the conversation, `ModelError` when the
        template itself fails.
        """
        try:
            return self._rendered(turns)
        except _RefusedError as error:
            raise self._refusal(turns, error) from error
        except Exception as error:  # whatever a stranger's program may come to
            raise ModelError(
                "bad_template",
                f"This model's chat template fails ({_said(error)})",
                "Completion still works; for chat choose another conversion of this model.",
            ) from error

    def lead(self, turns: Sequence[Turn]) -> str:
        """White space that the template writes before the words of an assistant's message which
        follows `turns`, and not yet where such a message begins."""
        opened = self._rendered(turns)
        said = next(c for c in map(chr, range(0xE000, 0xF8FF)) if c not in opened)
        try:
            whole = self._rendered([*turns, Turn(role="assistant", content=said)], opens=False)
        except Exception as error:  # the template may ask more of a message than these words
            logger.debug("the template takes no open message: %s", error)
            return ""
        lead = whole.partition(said)[0].removeprefix(opened) if said in whole else ""
        return lead if lead.isspace() and whole.startswith(opened) else ""

    def _rendered(self, turns: Sequence[Turn], *, opens: bool = True) -> str:
        return self._compiled.render(
            messages=[{"role": t.role, "content": t.content} for t in turns],
            tools=None,
            documents=None,
            add_generation_prompt=opens,
            **self._special_texts,
        )

    @cached_property
    def _compiled(self) -> Template:
        return _environment().from_string(self.source)

    def _refusal(self, turns: Sequence[Turn], error: _RefusedError) -> RequestError:
        said = _said(error)
        others = [t for t in turns if t.role != "system"]
        if others and len(others) < len(turns) and self._accepts(others):
            return RequestError(
                "no_system_role",
                f"This model's chat template takes no system message ({said})",
                "Leave the system text out, or put it at the beginning of the question.",
            )
        return RequestError(
            "template_refused",
            f"This model's chat template does not take this conversation ({said})",
            "Start with a user message and let user and assistant take turns.",
        )

    def _accepts(self, turns: Sequence[Turn]) -> bool:
        try:
            self._rendered(turns)
        except _RefusedError:
            return False
        return True


def _said(error: Exception) -> str:
    return str(error).strip().rstrip(".") or type(error).__name__


def turns_with_snippets(prompt: ChatPrompt) -> tuple[Turn, ...]:
    """The turns, with the snippets quoted at the beginning of the last user turn.

    Raises `RequestError` when there is no user turn.
    """
    asked = [i for i, turn in enumerate(prompt.turns) if turn.role == "user"]
    if not asked:
        raise RequestError(
            "no_question",
            f"The conversation of {len(prompt.turns)} messages has none from the user",
            "Add a question.",
        )
    if not prompt.snippets:
        return prompt.turns
    last = prompt.turns[asked[-1]]
    quoted = "".join(map(_quoted, prompt.snippets)) + last.content
    turn = msgspec.structs.replace(last, content=quoted)
    return (*prompt.turns[: asked[-1]], turn, *prompt.turns[asked[-1] + 1 :])


def _quoted(snippet: Snippet) -> str:
    runs = re.findall(r"`{3,}", snippet.text)
    fence = "`" * max([2, *map(len, runs)]) + "`"
    end = "" if snippet.text.endswith("\n") else "\n"
    return f"{snippet.path}\n{fence}\n{snippet.text}{end}{fence}\n\n"


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_raise_exception,
        strftime_now=_strftime_now,
        namespace=_PublicNamespace,
        dict=_new_dict,
    )
    return environment


class _GenerationTag(Extension):
    """`{% generation %}` marks what is trained on; in a prompt it stands for its body alone."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it as a plain set)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _PublicNamespace(Namespace):
    """jinja2's namespace without underscored names, which would reach past the sandbox."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        for name in dict(*rest, **kwargs):
            _check_public(name)
        Namespace.__init__(self, *rest, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


def _check_public(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"the template sets the private name {name!r}")


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: str) -> None:
    raise _RefusedError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without jinja2's HTML escapes, which a model has never seen."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
