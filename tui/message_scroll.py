"""The scrolling part of the transcript and the two lines that tell what is out of sight.

Owns following the end (new text is scrolled into view only while the reader is at the end) and the
message that the keys are at. Must not know what is done with messages, nor those without a widget.
"""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from tui.message_view import MessageView


class Messages(VerticalScroll, can_focus=False):
    """The scrolling part. Stays at its end until the user scrolls away from it."""

    DEFAULT_CSS = """
    Messages { scrollbar-size-vertical: 1; }
    """

    @property
    def following(self) -> bool:
        """Whether new text is scrolled into view."""
        return not (self.is_anchored and self._anchor_released)

    def follow(self) -> None:
        """Go to the end and stay there."""
        if self.is_anchored:
            self.scroll_end(animate=False, force=True)

    def fit(self) -> None:
        """Be anchored only while there is more than fits: the anchor would otherwise push what
        there is down to the lower edge."""
        overflows = self.max_scroll_y > 0
        if overflows and not self.is_anchored:
            self.anchor()
        elif not overflows and self.is_anchored:
            self.anchor(False)
            self._anchor_released = False
            self.scroll_home(animate=False, immediate=True, force=True)

    def on_mount(self) -> None:
        """Look at each change of what there is."""
        self.watch(self, "virtual_size", self.fit, init=False)

    def on_resize(self) -> None:
        """Less or more may fit now."""
        self.fit()

    def release_anchor(self) -> None:
        """Stop following, unless there was nowhere to scroll to."""
        super().release_anchor()
        self.call_after_refresh(self._follow_if_at_end)

    def _follow_if_at_end(self) -> None:
        if self.scroll_target_y >= self.max_scroll_y and self.scroll_y >= self.max_scroll_y:
            self._anchor_released = False

    @property
    def views(self) -> list[MessageView]:
        """The messages that have a widget, from top to bottom."""
        return list(self.query_children(MessageView))

    @property
    def current(self) -> MessageView | None:
        """The message that the keys are at."""
        return next((view for view in self.views if view.has_class("-current")), None)

    def mark(self, view: MessageView) -> None:
        """Make a message the one that the keys are at."""
        for other in self.views:
            other.set_class(other is view, "-current")

    def go_to(self, view: MessageView, *, upwards: bool) -> None:
        """Mark a message and scroll it into view: all of it, or of a tall one the end that is come
        to first."""
        self.mark(view)
        region = view.virtual_region
        height = self.scrollable_content_region.height
        if region.height <= height:
            self.scroll_to_widget(view, animate=False, force=True)
        else:
            top = region.bottom - height if upwards else region.y
            self.scroll_to(y=top, animate=False, force=True)

    def hidden_part(self, widget: Widget, *, upwards: bool) -> int:
        """Lines of a message that are out of sight above, or below."""
        top = self.scroll_offset.y
        region = widget.virtual_region
        if upwards:
            return max(0, top - region.y)
        return max(0, region.bottom - top - self.scrollable_content_region.height)


class Pill(Static):
    """Says how much came while the user was reading elsewhere; a click goes there."""

    def show(self, lines: int) -> None:
        """Show that so many lines are new; none hides it."""
        self.display = lines > 0
        if lines > 0:
            self.update(f"{lines:,} new line{'s' * (lines != 1)} ↓")


class Earlier(Static):
    """Says how many messages are not shown; a click shows some of them."""

    def show(self, count: int) -> None:
        """Show that so many messages are left out; none hides it."""
        self.display = count > 0
        self.update(f"↑ {count:,} earlier message{'s' * (count != 1)}")
