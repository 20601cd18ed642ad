"""A run on a terminal: what is final scrolls up, what goes on stands at the bottom and moves."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from coterie.agents import events
from coterie.agents.events import AgentChanged, Event, Finished, Retrying, Started, ToolEnded, ToolStarted
from coterie.orchestrator.cli.memory_wording import is_news
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.cli.views.calls import Calls
from coterie.orchestrator.cli.views.status import Status
from coterie.orchestrator.cli.views.view import View
from coterie.orchestrator.cli.wording import (
    error_text,
    finish_text,
    is_hook_news,
    is_trouble,
    outcome_text,
    said,
    sentence,
)
from coterie.orchestrator.events.observed import EpochBegan, MessageRecorded, Observed, ReplyRecorded

_SENTENCES = (
    events.ResultsCleared,
    events.CacheBroke,
    events.WindowFilling,
    events.LayerFailed,
    events.Noticed,
    EpochBegan,
)
"""Kinds that are worth a line of their own."""


@attrs.define(eq=False)
class _Running:
    call: str
    since: float


@attrs.define(eq=False)
class TerminalView(View):
    """Text streams in, running calls show their time, and a status line says what it costs."""

    _console: Console = attrs.field(factory=lambda: Console(highlight=False, markup=False, emoji=False))
    _status: Status = attrs.field(factory=Status, init=False)
    _calls: Calls = attrs.field(factory=Calls, init=False)
    _coming: str = attrs.field(default="", init=False)
    """The text of a reply that is not whole yet."""
    _running: dict[str, _Running] = attrs.field(factory=dict, init=False)
    _waiting: list[Observed] | None = attrs.field(default=None, init=False)
    """What happened while paused."""
    _was_said: bool | None = attrs.field(default=None, init=False)
    """Whether the last thing printed was said by the agent; None at first."""
    _live: Live | None = attrs.field(default=None, init=False)

    def take(self, observed: Observed) -> None:
        """Print what is final; the rest is seen at the next tick."""
        if self._waiting is not None:
            self._waiting.append(observed)
            return
        if isinstance(observed.event, AgentChanged) and not is_trouble(observed.event):
            return  # it says itself what it does
        if self._live is None:
            self._open()
        if isinstance(observed.event, Finished):
            self._end(observed.event, observed.session)
        elif observed.event is not None:
            self._show(observed.event)

    def tick(self) -> None:
        """Draw what moves."""
        if self._live is not None:
            self._live.refresh()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Take what moves off the screen, and put it back."""
        self._hide()
        self._waiting = []
        try:
            yield
        finally:
            waiting, self._waiting = self._waiting, None
            for observed in waiting:
                self.take(observed)

    def close(self) -> None:
        """Take what moves off the screen for good, and show the cursor."""
        self._hide()

    def _show(self, event: Event) -> None:
        match event:
            case Started():
                self._status.begin(event.model)
            case events.Text():
                self._coming += event.text
            case MessageRecorded(role="assistant"):
                self._end_message(event)
            case ToolStarted():
                self._running[event.id] = _Running(self._calls.brief(event.id, event.name), time.monotonic())
            case ToolEnded():
                self._end_call(event)
            case ReplyRecorded():
                self._coming = ""
                self._status.count(event)
            case Retrying():
                self._coming = ""
                self._mention(event)
            case events.McpChanged(state="failed" | "lost"):
                self._mention(event)
            case _ if isinstance(event, (*_SENTENCES, AgentChanged)) or is_news(event) or is_hook_news(event):
                self._mention(event)

    def _open(self) -> None:
        # One for each stretch: a `Live` that is started again would erase lines above its place.
        self._live = Live(
            get_renderable=self._moving,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _hide(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _end_message(self, message: MessageRecorded) -> None:
        self._coming = ""
        self._calls.note(message)
        if text := printable(said(message)).strip("\n"):
            self._print(Text(text), is_said=True)

    def _print(self, text: Text, *, is_said: bool = False) -> None:
        """Print what is final; a line is left empty around what is said."""
        if self._was_said is not None and (is_said or self._was_said):
            self._console.print()
        self._console.print(text)
        self._was_said = is_said

    def _end_call(self, event: ToolEnded) -> None:
        running = self._running.pop(event.id, None)
        call = running.call if running is not None else self._calls.brief(event.id, event.name)
        style = "red" if event.is_error else "dim"
        self._print(_fit(f"  {call}", f"  {outcome_text(event)}", self._console.width, style))

    def _end(self, event: Finished, session: str) -> None:
        self._hide()
        self._print(Text(f"{finish_text(event)}; session {session}", style="dim"))
        if (error := error_text(event)) is not None:
            self._print(Text(error, style="red"))

    def _mention(self, event: Event) -> None:
        self._print(Text(f"  {printable(sentence(event))}", style="dim"))

    def _moving(self) -> RenderableType:
        """What stands at the bottom, cut to the size that the terminal has now."""
        width, height = self._console.size
        now = time.monotonic()
        lines = [
            _fit(f"  {running.call}", f"  {now - running.since:.0f} s", width, "dim")
            for running in self._running.values()
        ]
        lines = [*lines[-max(height // 2, 1) :], Text(self._status.line(width), style="dim")]
        room = height - len(lines) - 1
        return Group(*self._tail(width, room), *lines)

    def _tail(self, width: int, room: int) -> list[Text]:
        """The last lines of the text that is coming in."""
        if not self._coming or room <= 0:
            return []
        # Wrapping all of a long text four times a second would cost more than the model's own work.
        screen = width * room
        start = max(len(self._coming) - 2 * screen, 0)
        text = printable(self._coming[start - start % screen :])
        return list(Text(text).wrap(self._console, width, overflow="fold"))[-room:]


def _fit(left: str, right: str, width: int, style: str) -> Text:
    """A line whose *left* part is cut, if it must be, so that the *right* one is seen."""
    text = Text(left)
    text.truncate(max(width - cell_len(right), width // 2), overflow="ellipsis")
    text.append(right)
    text.truncate(width, overflow="ellipsis")
    text.stylize(style)
    return text
