"""What a root is started with: a session that is wanted, or one to take up again, and the task of its lead."""

from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.agents.control.chores import Chore, read_chore
from coterie.clock import Clock
from coterie.orchestrator.session import MAIN, Session
from coterie.orchestrator.settings import Settings
from coterie.orchestrator.settings.carried import read, shown
from coterie.orchestrator.teams.team import Team
from coterie.orchestrator.tree.ordering import Order


@attrs.frozen(kw_only=True)
class Assignment:
    """Work for a lead, and the session it belongs to."""

    project: Path = attrs.field(converter=Path)
    task: str
    """Where a conversation has begun, what to say next; empty to go on where it stopped."""
    model: str
    settings: Settings
    definition: str | None = None
    session: str | None = None
    """The id of the session to take up again; None begins a new one."""
    script: str | None = None
    """Play the model from this file, on the embedded server, instead of asking the real one."""
    is_bare: bool = False
    can_ask: bool = False
    """Whether whoever starts the root can be asked for permissions."""
    asks_later: bool = False
    """Whether questions that nobody is there for wait until the user answers from a shell."""
    name: str = MAIN
    """Which agent is run; another than the lead only for a chore."""
    chore: Chore | None = None
    """What the agent is to do instead of a task: that alone, without a turn."""
    team: Team | None = None
    """Whom the lead of a new session has from the beginning; one that is taken up again knows its team."""

    @property
    def has_instructions(self) -> bool:
        """Whether instruction files are read."""
        return self.settings.instructions.enabled and not self.is_bare

    def open_session(self, clock: Clock) -> Session:
        """The session, made or counted up. Raises `ConfigInvalid` and `OSError`."""
        given = self.settings.is_final("sandbox.mode")
        sandbox = self.settings.sandbox.mode if given else None
        budget, mail = self.settings.max_budget_usd, self.settings.mail.durability
        if self.session is not None:
            return Session.resume(self.session, budget_usd=budget, sandbox=sandbox, mail=mail)
        return Session.create(
            self.project,
            clock,
            task=self.task,
            model=self.model,
            agent=self.definition,
            budget_usd=budget,
            sandbox=sandbox,
            mail=mail,
        )

    def order(self) -> Order:
        """The lead that is wanted."""
        return Order(
            name=self.name,
            task=self.task,
            model=self.model,
            settings=self.settings,
            definition=self.definition,
            is_bare=self.is_bare,
            chore=self.chore,
        )

    def to_bytes(self) -> bytes:
        """One JSON object."""
        members = attrs.asdict(self, recurse=False) | {"settings": shown(self.settings)}
        return msgspec.json.encode(members, enc_hook=str)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Assignment":
        """What `to_bytes` wrote."""
        members: dict[str, Any] = msgspec.json.decode(data)
        facts = {"settings": read(members["settings"]), "chore": read_chore(members["chore"])}
        return cls(**members | facts | {"team": msgspec.convert(members["team"], Team | None)})
