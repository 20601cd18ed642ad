"""Request that a root process is started with: a new or resumed session and the task of its lead."""

from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.agents.definitions.team_definition import TeamDefinition
from coterie.agents.root_link.job_messages import OfflineJob, parse_offline_job
from coterie.agents.settings import Settings, dump_settings, load_settings_dump
from coterie.clock import Clock
from coterie.session_directory import MAIN, SessionDirectory


@attrs.frozen(kw_only=True)
class SessionRequest:
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
    chore: OfflineJob | None = None
    """What the agent is to do instead of a task: that alone, without a turn."""
    team: TeamDefinition | None = None
    """Whom the lead of a new session has from the beginning; one that is taken up again knows its team."""

    @property
    def has_instructions(self) -> bool:
        """Whether instruction files are read."""
        return self.settings.instructions.enabled and not self.is_bare

    def open_session(self, clock: Clock) -> SessionDirectory:
        """The session, made or counted up. Raises `ConfigInvalid` and `OSError`."""
        given = self.settings.is_final("sandbox.mode")
        sandbox = self.settings.sandbox.mode if given else None
        budget, mail = self.settings.max_budget_usd, self.settings.mail.durability
        if self.session is not None:
            return SessionDirectory.resume(self.session, budget_usd=budget, sandbox=sandbox, mail=mail)
        return SessionDirectory.create(
            self.project,
            clock,
            task=self.task,
            model=self.model,
            agent=self.definition,
            budget_usd=budget,
            sandbox=sandbox,
            mail=mail,
        )

    def to_bytes(self) -> bytes:
        """One JSON object."""
        members = attrs.asdict(self, recurse=False) | {"settings": dump_settings(self.settings)}
        return msgspec.json.encode(members, enc_hook=str)

    @classmethod
    def from_bytes(cls, data: bytes) -> "SessionRequest":
        """What `to_bytes` wrote."""
        members: dict[str, Any] = msgspec.json.decode(data)
        facts = {"settings": load_settings_dump(members["settings"]), "chore": parse_offline_job(members["chore"])}
        return cls(**members | facts | {"team": msgspec.convert(members["team"], TeamDefinition | None)})
