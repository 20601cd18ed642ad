"""Terminal view: final text scrolls up, running calls and a status line stay at the bottom."""

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
    Noticed,
    Retrying,
    RunStarted,
    TextEmitted,
    ToolEnded,
    ToolStarted,
)
from coterie.agents.events.event_reader import EpochBegan, MessageRecorded, ReplyRecorded, SessionEvent
from coterie.agents.events.layer_events import CacheBroke, LayerFailed, ResultsCleared, WindowFilling
from coterie.agents.events.root_events import AgentChanged, McpChanged
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.usage import Usage
from coterie.orchestrator.cli.output import sanitize
from coterie.orchestrator.cli.views.event_text import (
    error_text,
    event_text,
    finish_text,
    is_hook_notice,
    is_problem,
    outcome_text,
    reply_text,
)
from coterie.orchestrator.cli.views.layer_event_text import is_memory_notice
from coterie.orchestrator.cli.views.plain import CallArguments
from coterie.orchestrator.cli.views.view import View

SEPARATOR = " | "


@attrs.define(eq=False)
class StatusLine:
    """What the replies of a run add up to."""

    _model: str = ""
    _began: float = attrs.field(factory=time.monotonic)
    _turn: int = 0
    _usage: Usage = attrs.field(factory=Usage)
    _last: Usage = attrs.field(factory=Usage)
    _cost: Decimal = Decimal(0)

    def begin(self, model: str) -> None:
        """The run's model is *model*."""
        self._model = model

    def count(self, reply: ReplyRecorded) -> None:
        """Add one reply."""
        self._turn = reply.turn
        self._last = reply.usage
        self._usage += reply.usage
        self._cost += Decimal(reply.cost_usd)

    def line(self, width: int) -> str:
        """As many of the facts as fit in *width* columns, the most wanted first."""
        shown = ""
        for fact in self._facts():
            longer = f"{shown}{SEPARATOR}{fact}" if shown else fact
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
        model = known_models().find(self._model)
        if model is not None and self._turn:
            facts.append(f"window {100 * self._last.total / model.window:.0f} %")
        return [*facts, self._model] if self._model else facts


_TEXT_EVENTS = (
    ResultsCleared,
    CacheBroke,
    WindowFilling,
    LayerFailed,
    Noticed,
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
    _status: StatusLine = attrs.field(factory=StatusLine, init=False)
    _calls: CallArguments = attrs.field(factory=CallArguments, init=False)
    _coming: str = attrs.field(default="", init=False)
    """The text of a reply that is not whole yet."""
    _running: dict[str, _Running] = attrs.field(factory=dict, init=False)
    _waiting: list[SessionEvent] | None = attrs.field(default=None, init=False)
    """What happened while paused."""
    _has_text: bool | None = attrs.field(default=None, init=False)
    """Whether the last thing printed was said by the agent; None at first."""
    _live: Live | None = attrs.field(default=None, init=False)

    def handle(self, observed: SessionEvent) -> None:
        """Print what is final; the rest is seen at the next tick."""
        if self._waiting is not None:
            self._waiting.append(observed)
            return
        if isinstance(observed.event, AgentChanged) and not is_problem(observed.event):
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
                self.handle(observed)

    def close(self) -> None:
        """Take what moves off the screen for good, and show the cursor."""
        self._hide()

    def _show(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._status.begin(event.model)
            case TextEmitted():
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
            case McpChanged(state="failed" | "lost"):
                self._mention(event)
            case _ if (
                isinstance(event, (*_TEXT_EVENTS, AgentChanged)) or is_memory_notice(event) or is_hook_notice(event)
            ):
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
        self._calls.remember(message)
        if text := sanitize(reply_text(message)).strip("\n"):
            self._print(Text(text), is_said=True)

    def _print(self, text: Text, *, is_said: bool = False) -> None:
        """Print what is final; a line is left empty around what is said."""
        if self._has_text is not None and (is_said or self._has_text):
            self._console.print()
        self._console.print(text)
        self._has_text = is_said

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
        self._print(Text(f"  {sanitize(event_text(event))}", style="dim"))

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
        text = sanitize(self._coming[start - start % screen :])
        return list(Text(text).wrap(self._console, width, overflow="fold"))[-room:]


def _fit(left: str, right: str, width: int, style: str) -> Text:
    """A line whose *left* part is cut, if it must be, so that the *right* one is seen."""
    text = Text(left)
    text.truncate(max(width - cell_len(right), width // 2), overflow="ellipsis")
    text.append(right)
    text.truncate(width, overflow="ellipsis")
    text.stylize(style)
    return text
