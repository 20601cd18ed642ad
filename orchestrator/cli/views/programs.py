"""A run for programs: its result, its summary, or all of its events."""

import json

import attrs
import click

from coterie.agents.events import Finished, Noticed, Started
from coterie.orchestrator.cli.views.plain import print_aside, print_error, print_said
from coterie.orchestrator.cli.views.view import View
from coterie.orchestrator.cli.wording import sentence
from coterie.orchestrator.events.observed import Observed
from coterie.orchestrator.events.sources import TRANSCRIPT
from coterie.orchestrator.session import MAIN, Session


class ResultView(View):
    """The text of the last reply; and on standard error what was meant to be used and was not."""

    def take(self, observed: Observed) -> None:
        """Print the end."""
        match observed.event:
            case Noticed() as event:
                print_aside(sentence(event))
            case Finished() as event:
                if event.result:
                    print_said(event.result)
                print_error(event)


class StreamView(View):
    """Every event, as a line of JSON, as soon as it is there; `docs/events.md` says what is in it."""

    agent = None

    def take(self, observed: Observed) -> None:
        """Print the event."""
        click.echo(observed.line, nl=False)


@attrs.define(eq=False)
class SummaryView(View):
    """How the run ended, as one JSON object; and on standard error what was meant to be used and was not."""

    _model: str = ""
    _began: float = 0.0

    def take(self, observed: Observed) -> None:
        """Print the end."""
        match observed.event:
            case Started() as event:
                self._model, self._began = event.model, observed.at
            case Noticed() as event:
                print_aside(sentence(event))
            case Finished() as event:
                session = Session.find(observed.session)
                click.echo(json.dumps(self._summary(session, event, observed.at - self._began)))

    def _summary(self, session: Session, end: Finished, seconds: float) -> dict[str, object]:
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
