"""One wish for grey text: from the client's message to the items it is sent.

The document is looked at the moment the wish arrives, the answer is laid over the document as it is
when the answer is there. It owns what is told to the client when there is no answer: nothing, as an
empty list, because some clients go on showing an old text on null; and null for a wish that a newer
one has taken the place of. How a completion is made is the completer's business.

Invariant: no item without a range on one line; no answer is an error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from engine.protocol import EngineError
from lsp.hello import ACCEPTED
from lsp.messages import ClientSelection, InlineCompletion, TriggerKinds, selected
from lsp.positions import client_position, offset_of

if TYPE_CHECKING:
    from lsp.client import Client
    from lsp.complete import Suggestion, Wanted
    from lsp.document import Document
    from lsp.documents import Documents
    from lsp.sync import Sync

JUST_TYPED_S = 0.25
"""A wish this soon after a change comes from typing."""

log = logging.getLogger(__name__)


class Completes(Protocol):
    """Who makes completions."""

    async def complete(self, wanted: Wanted) -> list[Suggestion] | None:
        """What to show, laid out on the document as it is on return: empty for nothing, None if a
        newer wish for the document took this one's place."""
        ...


class Answers:
    """Answers the wishes of one client."""

    def __init__(self, documents: Documents, sync: Sync) -> None:
        self._documents = documents
        self._sync = sync
        self._kinds = TriggerKinds()

    def wanted(self, params: InlineCompletion) -> Wanted | None:
        """What is wished for, on the document as it is now; None if it is not open."""
        from lsp.complete import Wanted

        uri = params.text_document.uri
        document = self._documents.get(uri)
        if document is None:
            return None
        since = self._sync.since_change(uri)
        explicit = self._kinds.explicit(
            params.context, just_typed=since is not None and since < JUST_TYPED_S
        )
        offset = offset_of(document, params.position, self._documents.encoding)
        snapshot = self._documents.snapshot(uri, offset)
        assert snapshot is not None
        selection = selected(params.context)
        return Wanted(
            snapshot=snapshot,
            explicit=explicit,
            selected=None if selection is None else self._selected(document, selection),
        )

    async def answer(
        self, completer: Completes, wanted: Wanted, client: Client
    ) -> list[dict[str, Any]] | None:
        """The items for a wish; an engine that is away is told once, in the client's log."""
        try:
            suggestions = await completer.complete(wanted)
        except EngineError as error:
            client.warn(str(error))
            return []
        except Exception:
            log.exception("a completion failed")
            return []
        document = self._documents.get(wanted.snapshot.uri)
        if suggestions is None or document is None:
            return None if document is not None else []
        items = [self._item(document, one, client) for one in suggestions]
        return [item for item in items if item is not None]

    def _item(
        self, document: Document, suggestion: Suggestion, client: Client
    ) -> dict[str, Any] | None:
        encoding = self._documents.encoding
        start = client_position(document, suggestion.start, encoding)
        end = client_position(document, suggestion.end, encoding)
        if start.line != end.line or suggestion.end < suggestion.start:
            log.error("a suggestion over more than one line was left out")
            return None
        text = suggestion.text
        if client.hello.line_feeds_only:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return {
            "insertText": text,
            "range": {
                "start": {"line": start.line, "character": start.character},
                "end": {"line": end.line, "character": end.character},
            },
            "command": {"title": "Accepted", "command": ACCEPTED, "arguments": [suggestion.id]},
        }

    def _selected(self, document: Document, selection: ClientSelection) -> Any:
        from lsp.complete import Selected

        encoding = self._documents.encoding
        start = offset_of(document, selection.range.start, encoding)
        end = offset_of(document, selection.range.end, encoding)
        return Selected(start=start, end=max(start, end), text=selection.text)
