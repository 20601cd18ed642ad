"""Plain view: replies on standard output, tool calls and notices on standard error."""

import sys
from collections.abc import Mapping
from typing import Any

import attrs
import click

from coterie.agents.events.agent_events import Event, Finished, Noticed, Retrying, ToolEnded
from coterie.agents.events.event_reader import MessageRecorded, SessionEvent
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.events.root_events import AgentChanged, McpChanged
from coterie.orchestrator.cli.output import one_line, sanitize
from coterie.orchestrator.cli.views.event_text import (
    SHOWN,
    call_text,
    error_text,
    event_text,
    finish_text,
    is_hook_notice,
    is_problem,
    outcome_text,
    reply_text,
)
from coterie.orchestrator.cli.views.layer_event_text import is_memory_notice
from coterie.orchestrator.cli.views.view import View

MAIN_ARGUMENTS = ("file_path", "notebook_path", "command", "pattern", "bash_id")
"""The argument that says best what a call is about; of other tools it is the first."""


@attrs.define(eq=False)
class CallArguments:
    """Remembers the arguments of the calls of the last message."""

    _arguments: dict[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def remember(self, message: MessageRecorded) -> None:
        """Take the calls of a message of the model; all earlier ones have ended."""
        self._arguments = {block["id"]: block["input"] for block in message.content if block.get("type") == "tool_use"}

    def text(self, call: str, name: str) -> str:
        """The call with its arguments."""
        return call_text(name, self._arguments.get(call, {}))

    def brief(self, call: str, name: str) -> str:
        """The call with its main argument, on one line."""
        arguments = self._arguments.get(call, {})
        main = next((key for key in MAIN_ARGUMENTS if key in arguments), next(iter(arguments), None))
        about = one_line(str(arguments[main]), SHOWN) if main is not None else ""
        return f"{one_line(name, SHOWN)} {about}".strip()


@attrs.define(eq=False)
class PlainView(View):
    """For a file, a pipe, or a terminal that cannot do more."""

    _calls: CallArguments = attrs.field(factory=CallArguments)

    def handle(self, observed: SessionEvent) -> None:
        """Print what is whole: messages, calls that have ended, the end."""
        match observed.event:
            case MessageRecorded(role="assistant") as message:
                self._calls.remember(message)
                if text := reply_text(message):
                    print_reply(text)
            case ToolEnded() as event:
                print_status(f"  {self._calls.text(event.id, event.name)}  {outcome_text(event)}")
            case Retrying() | Noticed() | LayerFailed() | McpChanged(state="failed" | "lost") as event:
                print_status(f"  {event_text(event)}")
            case Event() as event if is_memory_notice(event) or is_hook_notice(event):
                print_status(f"  {event_text(event)}")
            case AgentChanged() as event if is_problem(event):
                print_status(f"  {event_text(event)}")
            case Finished() as event:
                print_status(f"{finish_text(event)}; session {observed.session}")
                print_error(event)


def print_reply(text: str) -> None:
    """Print words of the model on standard output: as they are, except on a terminal."""
    click.echo(sanitize(text) if sys.stdout.isatty() else text)


def print_error(event: Finished) -> None:
    """Print why a run failed, if it did."""
    if (error := error_text(event)) is not None:
        click.echo(error, err=True)


def print_status(line: str) -> None:
    """Print what is not the model's on standard error."""
    click.echo(click.style(sanitize(line), dim=True), err=True)
