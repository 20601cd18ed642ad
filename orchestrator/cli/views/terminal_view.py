"""Terminal view of a run: finished text scrolls up, running tool calls and a status line are redrawn at the bottom."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

import attrs
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from coterie.agents.events.agent_events import (
    Event,
    Finished,
    Retrying,
    RunStarted,
    TextEmitted,
    ToolEnded,
    ToolStarted,
)
from coterie.agents.events.event_reader import MessageRecorded, ReplyRecorded, SessionEvent
from coterie.agents.events.root_events import AgentChanged
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.cli.output import sanitize
from coterie.orchestrator.cli.views.event_text import (
    error_text,
    event_level,
    event_text,
    finish_text,
    outcome_text,
    reply_text,
)
from coterie.orchestrator.cli.views.plain import CallArguments
from coterie.orchestrator.cli.views.view import View


@attrs.define(eq=False)
class StatusLine:
    """Status line of a run: seconds, turn, cost, tokens, model and percentage of the context window in use."""

    model: str = ""
    _began: float = attrs.field(factory=time.monotonic)
    _turn: int = 0
    _usage: Usage = attrs.field(factory=Usage)
    _last: Usage = attrs.field(factory=Usage)
    _cost: Decimal = Decimal(0)

    def count(self, reply: ReplyRecorded) -> None:
        """Add tokens and cost of one reply of the model to the totals."""
        self._turn = reply.turn
        self._last = reply.usage
        self._usage += reply.usage
        self._cost += Decimal(reply.cost_usd)

    def line(self, width: int) -> str:
        """Return the status line, cut to as many of its parts as fit in *width* characters, most important first."""
        shown = ""
        for fact in self._facts():
            longer = f"{shown} | {fact}" if shown else fact
            if len(longer) > width:
                break
            shown = longer
        return shown

    def _facts(self) -> list[str]:
        facts = [f"{time.monotonic() - self._began:.0f} s"]
        if self._turn:
            share = 100 * self._usage.read / self._usage.prompt if self._usage.prompt else 0
            facts += [f"turn {self._turn}", f"${self._cost:.4f}"]
            facts += [f"{self._usage.prompt:,} tokens in, {share:.0f} % cached", f"{self._usage.output:,} out"]
        model = known_models().find(self.model)
        if model is not None and self._turn:
            facts.append(f"window {100 * self._last.total / model.window:.0f} %")
        return [*facts, self.model] if self.model else facts


@attrs.define(eq=False)
class TerminalView(View):
    """View of a run for a terminal: shows streamed text, running tool calls with their time, and a status line."""

    _console: Console = attrs.field(factory=lambda: Console(highlight=False, markup=False, emoji=False))
    _status: StatusLine = attrs.field(factory=StatusLine, init=False)
    _calls: CallArguments = attrs.field(factory=CallArguments, init=False)
    _coming: str = attrs.field(default="", init=False)
    """Text, so far, of the model's reply that is being streamed; empty when the reply is complete."""
    _running: dict[str, tuple[str, float]] = attrs.field(factory=dict, init=False)
    """Description and monotonic start time of each running tool call, by id of the call."""
    _waiting: list[SessionEvent] | None = attrs.field(default=None, init=False)
    """Events that arrived while the view was paused, to be shown later; None if the view is not paused."""
    _has_text: bool | None = attrs.field(default=None, init=False)
    """True if the last print was text of the agent, False if it was another line; None before the first print."""
    _live: Live | None = attrs.field(default=None, init=False)

    def handle(self, observed: SessionEvent) -> None:
        """Print the event, or update running calls and status line, which the next `tick` redraws; queue if paused."""
        if self._waiting is not None:
            self._waiting.append(observed)
            return
        if isinstance(observed.event, AgentChanged) and event_level(observed.event) == "detail":
            return  # the agent's own events say the same
        if self._live is None:
            self._open()
        if isinstance(observed.event, Finished):
            self._end(observed.event, observed.session)
        elif observed.event is not None:
            self._show(observed.event)

    def tick(self) -> None:
        """Redraw the streamed text, the running tool calls and the status line at the bottom of the terminal."""
        if self._live is not None:
            self._live.refresh()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide running calls and status line within the block, queue new events, and show these events afterwards."""
        self.close()
        self._waiting = []
        try:
            yield
        finally:
            waiting, self._waiting = self._waiting, None
            for observed in waiting:
                self.handle(observed)

    def close(self) -> None:
        """Erase running calls and status line until the next event, and show the cursor."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._status.model = event.model
            case TextEmitted():
                self._coming += event.text
            case MessageRecorded(role="assistant"):
                self._coming = ""
                self._calls.remember(event)
                if text := sanitize(reply_text(event)).strip("\n"):
                    self._print(Text(text), is_said=True)
            case ToolStarted():
                self._running[event.id] = self._calls.brief(event.id, event.name), time.monotonic()
            case ToolEnded():
                call, _ = self._running.pop(event.id, (self._calls.brief(event.id, event.name), 0.0))
                style = "red" if event.is_error else "dim"
                self._print(_fit(f"  {call}", f"  {outcome_text(event)}", self._console.width, style))
            case ReplyRecorded():
                self._coming = ""
                self._status.count(event)
            case Retrying():
                self._coming = ""
                self._mention(event)
            case _ if event_level(event) != "detail":
                self._mention(event)

    def _open(self) -> None:
        # A new `Live` each time, because restarting one would erase lines above it.
        self._live = Live(
            get_renderable=self._moving,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _print(self, text: Text, *, is_said: bool = False) -> None:
        """Print *text* above the redrawn part, with an empty line around text of the agent (*is_said*)."""
        if self._has_text is not None and (is_said or self._has_text):
            self._console.print()
        self._console.print(text)
        self._has_text = is_said

    def _end(self, event: Finished, session: str) -> None:
        self.close()
        self._print(Text(f"{finish_text(event)}; session {session}", style="dim"))
        if (error := error_text(event)) is not None:
            self._print(Text(error, style="red"))

    def _mention(self, event: Event) -> None:
        self._print(Text(f"  {sanitize(event_text(event))}", style="dim"))

    def _moving(self) -> RenderableType:
        """Return the redrawn part, cut to the terminal size: end of the streamed text, running calls, status line."""
        width, height = self._console.size
        now = time.monotonic()
        lines = [_fit(f"  {call}", f"  {now - since:.0f} s", width, "dim") for call, since in self._running.values()]
        lines = [*lines[-max(height // 2, 1) :], Text(self._status.line(width), style="dim")]
        room = height - len(lines) - 1
        return Group(*self._tail(width, room), *lines)

    def _tail(self, width: int, room: int) -> list[Text]:
        """Return the last lines of the streamed text, wrapped to *width* columns, at most *room* lines."""
        if not self._coming or room <= 0:
            return []
        # Wrapping a whole long text four times a second would be slow.
        screen = width * room
        start = max(len(self._coming) - 2 * screen, 0)
        text = sanitize(self._coming[start - start % screen :])
        return list(Text(text).wrap(self._console, width, overflow="fold"))[-room:]


def _fit(left: str, right: str, width: int, style: str) -> Text:
    """Return a line of *left* and *right* in *style*; *left* is truncated so that both fit in *width* columns."""
    text = Text(left)
    text.truncate(max(width - cell_len(right), width // 2), overflow="ellipsis")
    text.append(right)
    text.truncate(width, overflow="ellipsis")
    text.stylize(style)
    return text
