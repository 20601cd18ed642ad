"""A run as plain lines: what the agent says on standard output, what it does on standard error."""

import sys

import attrs
import click

from coterie.agents.events import AgentChanged, Event, Finished, LayerFailed, McpChanged, Noticed, Retrying, ToolEnded
from coterie.orchestrator.cli.memory_wording import is_news
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.cli.views.calls import Calls
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
from coterie.orchestrator.events.observed import MessageRecorded, Observed


@attrs.define(eq=False)
class PlainView(View):
    """For a file, a pipe, or a terminal that cannot do more."""

    _calls: Calls = attrs.field(factory=Calls)

    def take(self, observed: Observed) -> None:
        """Print what is whole: messages, calls that have ended, the end."""
        match observed.event:
            case MessageRecorded(role="assistant") as message:
                self._calls.note(message)
                if text := said(message):
                    print_said(text)
            case ToolEnded() as event:
                print_aside(f"  {self._calls.text(event.id, event.name)}  {outcome_text(event)}")
            case Retrying() | Noticed() | LayerFailed() | McpChanged(state="failed" | "lost") as event:
                print_aside(f"  {sentence(event)}")
            case Event() as event if is_news(event) or is_hook_news(event):
                print_aside(f"  {sentence(event)}")
            case AgentChanged() as event if is_trouble(event):
                print_aside(f"  {sentence(event)}")
            case Finished() as event:
                print_aside(f"{finish_text(event)}; session {observed.session}")
                print_error(event)


def print_said(text: str) -> None:
    """Print words of the model on standard output: as they are, except on a terminal."""
    click.echo(printable(text) if sys.stdout.isatty() else text)


def print_error(event: Finished) -> None:
    """Print why a run failed, if it did."""
    if (error := error_text(event)) is not None:
        click.echo(error, err=True)


def print_aside(line: str) -> None:
    """Print what is not the model's on standard error."""
    click.echo(click.style(printable(line), dim=True), err=True)
