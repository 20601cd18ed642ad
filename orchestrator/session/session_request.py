"""Request with which a client starts a root process: a new or resumed session, and the task of its first agent."""

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
    """Start parameters of a root process: the session, its settings, and the task of its lead (first agent)."""

    project: Path = attrs.field(converter=Path)
    task: str
    """Task, or next user message of a resumed conversation; empty to continue where that conversation stopped."""
    model: str
    settings: Settings
    definition: str | None = None
    session: str | None = None
    """Id of the session to resume; None starts a new session."""
    script: str | None = None
    """Path of the script with the model's replies, for an embedded API server; None to use the real API."""
    is_bare: bool = False
    can_ask: bool = False
    """True if the launch client, which starts the root, can show permission prompts to the user."""
    asks_later: bool = False
    """True if prompts that no client can show wait until the user answers by a command, instead of being denied."""
    name: str = MAIN
    """Name of the agent to run: the lead, or the agent that runs the offline job `chore`."""
    chore: OfflineJob | None = None
    """Offline job, such as a compaction, that the agent runs instead of a task; None to run the task."""
    team: TeamDefinition | None = None
    """Team of a new session; None for no team, and for a resumed session, which reads its recorded team."""

    @classmethod
    def prepare(cls, settings: Settings, project: Path, script: Path | None, **facts: Any) -> Self:
        """Build a request from *settings*, with the values of the agent definition that they name applied.

        *facts* are further fields; a model in *facts* replaces that of the settings. Blocks on the disk. Raises
        `ConfigInvalid` for an unknown agent definition or model.
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
        """Create the session, or open the resumed one and add 1 to its starts. Raises `ConfigInvalid` and `OSError`."""
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
        """Return the request as one JSON object, which `from_bytes` decodes."""
        members = attrs.asdict(self, recurse=False) | {"settings": dump_settings(self.settings)}
        return msgspec.json.encode(members, enc_hook=str)

    @classmethod
    def from_bytes(cls, data: bytes) -> "SessionRequest":
        """Return the request that `to_bytes` has encoded as *data*."""
        members: dict[str, Any] = msgspec.json.decode(data)
        facts = {"settings": load_settings_dump(members["settings"]), "chore": parse_offline_job(members["chore"])}
        return cls(**members | facts | {"team": msgspec.convert(members["team"], TeamDefinition | None)})
