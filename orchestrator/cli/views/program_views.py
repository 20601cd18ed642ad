"""Views of a run for programs that read its standard output: final text, one JSON summary, or all events as JSON."""

import json

import attrs
import click

from coterie.agents.events.agent_events import Finished, Noticed, RunStarted
from coterie.agents.events.event_reader import SessionEvent
from coterie.orchestrator.cli.views.event_text import event_text
from coterie.orchestrator.cli.views.plain import print_error, print_reply, print_status
from coterie.orchestrator.cli.views.view import View
from coterie.session_directory import MAIN, TRANSCRIPT, SessionDirectory


class ResultView(View):
    """View that prints only the final text of a run on standard output, and warnings and errors on standard error."""

    def handle(self, observed: SessionEvent) -> None:
        """Print a warning, or the final text and the error when the run ends; ignore all other events."""
        match observed.event:
            case Noticed() as event:
                print_status(event_text(event))
            case Finished() as event:
                if event.result:
                    print_reply(event.result)
                print_error(event)


class StreamView(View):
    """View that prints each event of all agents, when it occurs, as a line of JSON; `docs/events.md` describes them."""

    agent = None

    def handle(self, observed: SessionEvent) -> None:
        """Print the event as its line of JSON on standard output."""
        click.echo(observed.line, nl=False)


@attrs.define(eq=False)
class SummaryView(View):
    """View that prints one JSON object with result and costs when the run ends, and warnings on standard error."""

    _model: str = ""
    _began: float = 0.0

    def handle(self, observed: SessionEvent) -> None:
        """Store the start of the run, print a warning, or print the summary when the run ends; ignore other events."""
        match observed.event:
            case RunStarted() as event:
                self._model, self._began = event.model, observed.at
            case Noticed() as event:
                print_status(event_text(event))
            case Finished() as event:
                session = SessionDirectory.find(observed.session)
                click.echo(json.dumps(self._summary(session, event, observed.at - self._began)))

    def _summary(self, session: SessionDirectory, end: Finished, seconds: float) -> dict[str, object]:
        return {
            "session_id": session.id,
            "transcript": str(session.directory / "agents" / MAIN / TRANSCRIPT),
            "model": self._model,
            "reason": end.reason,
            "result": end.result,
            "turns": end.turns,
            "seconds": round(seconds, 3),
            "usage": end.usage,
            "cost_usd": end.cost_usd,
            "error": end.error,
        }
