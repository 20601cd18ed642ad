"""Plain view of a run: replies on standard output, tool calls and notices on standard error, no cursor movement."""

import sys
from collections.abc import Mapping
from typing import Any

import attrs
import click

from coterie.agents.events.agent_events import Event, Finished, ToolEnded
from coterie.agents.events.event_reader import MessageRecorded, SessionEvent
from coterie.orchestrator.cli.output import one_line, sanitize
from coterie.orchestrator.cli.views.event_text import (
    SHOWN,
    call_text,
    error_text,
    event_level,
    event_text,
    finish_text,
    outcome_text,
    reply_text,
)
from coterie.orchestrator.cli.views.view import View

MAIN_ARGUMENTS = ("file_path", "notebook_path", "command", "pattern", "bash_id")
"""Names of the arguments that are shown when a tool call is cut to one argument; other calls show their first one."""


@attrs.define(eq=False)
class CallArguments:
    """Arguments of the tool calls in the model's last message, kept because events of a call do not contain them."""

    _arguments: dict[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def remember(self, message: MessageRecorded) -> None:
        """Store the arguments of the tool calls in *message*, a message of the model; drop all earlier arguments."""
        self._arguments = {block["id"]: block["input"] for block in message.content if block.get("type") == "tool_use"}

    def text(self, call: str, name: str) -> str:
        """Return the call of tool *name* with id *call* as text with all its arguments, such as `Grep(pattern='x')`."""
        return call_text(name, self._arguments.get(call, {}))

    def brief(self, call: str, name: str) -> str:
        """Return the call of tool *name* with id *call* as one line with its main argument, such as `Read src/a.py`."""
        arguments = self._arguments.get(call, {})
        main = next((key for key in MAIN_ARGUMENTS if key in arguments), next(iter(arguments), None))
        about = one_line(str(arguments[main]), SHOWN) if main is not None else ""
        return f"{one_line(name, SHOWN)} {about}".strip()


@attrs.define(eq=False)
class PlainView(View):
    """View of a run that prints complete lines only, for a file, a pipe or a terminal without cursor movement."""

    _calls: CallArguments = attrs.field(factory=CallArguments)

    def handle(self, observed: SessionEvent) -> None:
        """Print the event if it is a reply, an ended tool call, a problem, a notice or the end of the run."""
        match observed.event:
            case MessageRecorded(role="assistant") as message:
                self._calls.remember(message)
                if text := reply_text(message):
                    print_reply(text)
            case ToolEnded() as event:
                print_status(f"  {self._calls.text(event.id, event.name)}  {outcome_text(event)}")
            case Finished() as event:
                print_status(f"{finish_text(event)}; session {observed.session}")
                print_error(event)
            case Event() as event if event_level(event) in ("problem", "notice"):
                print_status(f"  {event_text(event)}")


def print_reply(text: str) -> None:
    """Print *text* of the model on standard output; remove control characters only if that is a terminal."""
    click.echo(sanitize(text) if sys.stdout.isatty() else text)


def print_error(event: Finished) -> None:
    """Print the error that ended the run on standard error; nothing if no error ended it."""
    if (error := error_text(event)) is not None:
        click.echo(error, err=True)


def print_status(line: str) -> None:
    """Print *line* dimmed on standard error, without control characters."""
    click.echo(click.style(sanitize(line), dim=True), err=True)
