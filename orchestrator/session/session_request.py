"""Request that a root process is started with: a new or resumed session and the task of its lead."""

from pathlib import Path
from typing import Any, Self

import attrs
import msgspec

from coterie.agents.definitions.team_definition import TeamDefinition
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.root_link.job_messages import OfflineJob, parse_offline_job
from coterie.agents.settings import Settings, dump_settings, load_settings_dump
from coterie.clock import Clock
from coterie.session_directory import MAIN, SessionDirectory


@attrs.frozen(kw_only=True)
class SessionRequest:
    """Task for a lead, and the session in which it runs."""

    project: Path = attrs.field(converter=Path)
    task: str
    """Task, or the next user message of a resumed conversation; empty to continue where the conversation stopped."""
    model: str
    settings: Settings
    definition: str | None = None
    session: str | None = None
    """Id of the session to resume; None starts a new session."""
    script: str | None = None
    """Script file for the embedded API server, which then replaces the real model."""
    is_bare: bool = False
    can_ask: bool = False
    """True if the launch client answers permission prompts."""
    asks_later: bool = False
    """True if prompts without a client wait until the user answers from a shell."""
    name: str = MAIN
    """Agent to run; differs from the lead only for an offline job."""
    chore: OfflineJob | None = None
    """Offline job that the agent runs instead of a task, without a turn."""
    team: TeamDefinition | None = None
    """Team of a new session; a resumed session reads its recorded team."""

    @classmethod
    def prepare(cls, settings: Settings, project: Path, script: Path | None, **facts: Any) -> Self:
        """Build a request from *settings* and the agent definition that they name; *facts* are further fields.

        A model in *facts* replaces that of the settings. Blocks on the disk. Raises `ConfigInvalid` for an unknown type
        or model.
        """
        # Imported here, because a client that only shows sessions needs no definitions.
        from coterie.orchestrator.settings.settings_loader import apply_definition  # noqa: PLC0415

        settings, definition = apply_definition(settings, project)
        prepared = {
            "model": known_models().get(settings.model).id,
            "definition": None if definition is None else definition.name,
            "script": None if script is None else str(script),
        }
        return cls(project=project, settings=settings, **prepared | facts)

    def open_session(self, clock: Clock) -> SessionDirectory:
        """Create the session, or resume it and increment its start count. Raises `ConfigInvalid` and `OSError`."""
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
        """Encode the request as one JSON object."""
        members = attrs.asdict(self, recurse=False) | {"settings": dump_settings(self.settings)}
        return msgspec.json.encode(members, enc_hook=str)

    @classmethod
    def from_bytes(cls, data: bytes) -> "SessionRequest":
        """Decode the result of `to_bytes`."""
        members: dict[str, Any] = msgspec.json.decode(data)
        facts = {"settings": load_settings_dump(members["settings"]), "chore": parse_offline_job(members["chore"])}
        return cls(**members | facts | {"team": msgspec.convert(members["team"], TeamDefinition | None)})
