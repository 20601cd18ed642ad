"""The options of `coterie logs` that look at an agent's context as it was: one request, its layers, what left it."""

from collections.abc import Callable
from typing import Literal

import attrs
import click

from coterie.agents.errors import ConfigInvalid, TranscriptCorrupt
from coterie.orchestrator.cli.dropped import print_dropped
from coterie.orchestrator.cli.layers import print_layers
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.rendered import print_request
from coterie.orchestrator.events.sources import TRANSCRIPT
from coterie.orchestrator.session import Session

View = Literal["rendered", "layers", "dropped"]


def looking_back_options(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that `LookingBack` takes."""
    options = (
        click.option("--turn", type=int, metavar="N", help="The turn that --rendered shows."),
        click.option("--rendered", is_flag=True, help="Show the request of a turn, and what made each part of it."),
        click.option("--bytes", "as_bytes", is_flag=True, help="With --rendered: the body alone, byte for byte."),
        click.option("--layers", is_flag=True, help="Show what filled the context, turn by turn."),
        click.option("--dropped", is_flag=True, help="Show what left the context, and where it can be read."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@attrs.frozen(kw_only=True)
class LookingBack:
    """What is wanted of the past of one agent."""

    turn: int | None
    rendered: bool
    as_bytes: bool
    layers: bool
    dropped: bool
    as_json: bool

    @property
    def view(self) -> View | None:
        """What is to be shown; None if all that happened is."""
        views: dict[View, bool] = {"rendered": self.rendered, "layers": self.layers, "dropped": self.dropped}
        return next((view for view, is_wanted in views.items() if is_wanted), None)

    def check(self, *, is_following: bool) -> None:
        """Raise `ConfigInvalid` for options that do not go together."""
        if self.rendered + self.layers + self.dropped + is_following > 1:
            raise ConfigInvalid("logs", "give one of --rendered, --layers, --dropped and --follow")
        if self.rendered != (self.turn is not None):
            raise ConfigInvalid("--turn" if self.turn is not None else "--rendered", "give --turn N with --rendered")
        if self.as_bytes and (self.as_json or not self.rendered):
            raise ConfigInvalid("--bytes", "goes with --rendered, and not with --json")

    def show(self, session: Session, agent: str) -> None:
        """Print it. Raises `ConfigInvalid` for a turn that is not there, or a transcript that is not or is damaged."""
        directory = session.directory / "agents" / agent
        try:
            with open_output():
                match self.view:
                    case "layers":
                        print_layers(directory, as_json=self.as_json)
                    case "dropped":
                        print_dropped(directory, as_json=self.as_json)
                    case _:
                        assert self.turn is not None
                        print_request(directory / TRANSCRIPT, self.turn, as_json=self.as_json, as_bytes=self.as_bytes)
        except FileNotFoundError as exc:
            raise ConfigInvalid("--agent", f"{agent!r} of session {session.id} has no transcript") from exc
        except TranscriptCorrupt as exc:
            raise ConfigInvalid(str(directory / TRANSCRIPT), f"is damaged, {exc}") from exc
