"""A session on disk: its directory, the record `session.json` in it, and the names of the other files."""

import re
import secrets
import time
from decimal import Decimal
from pathlib import Path
from typing import Literal

import attrs
import msgspec

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.files import replace_file
from coterie.paths import home_directory

SandboxMode = Literal["none", "landlock", "bubblewrap"]
"""Sandbox modes, from the weakest to the strongest."""
# Repeated here, because the module that defines these names imports trio, which would delay every error message.
MailDurability = Literal["process", "power"]

VERSION = 1
SESSION_FILE = "session.json"
MAIN = "main"
"""Name of the lead, the first agent of a session, to which the user talks."""
COORDINATOR = "coordinator"
"""Agent type of a lead (the first agent of a session) that only delegates work to other agents."""
TASKS = "tasks"
"""Name of the directory of the shared task list, inside the directory of a session."""
SCRATCH = "scratch"
"""Name of the directory for files that the agents of a session share, inside the directory of the session."""


@attrs.frozen(kw_only=True)
class SessionDirectory:
    """Record of a session: its project, task and start options, stored in `session.json` of its directory."""

    id: str
    project: Path
    """Working directory of the agents of the session, except agents that work in a git worktree of their own."""
    task: str
    model: str
    started: float
    starts: int = 1
    """Number of times that the session was started or resumed, from 1."""
    agent: str | None = None
    """Name of the agent definition (a file with tools and prompt) of the first agent; None for the default agent."""
    budget_usd: Decimal | None = None
    """Limit in US dollars for all agents of the session over all its starts; None for no limit."""
    sandbox: SandboxMode | None = None
    """Sandbox mode from the command line, valid for all starts; None if the settings decide."""
    mail: MailDurability = "process"
    """Failure that a stored message survives: crash of a "process", or loss of "power". `coterie mail` uses it too."""

    @classmethod
    def create(
        cls,
        project: Path,
        clock: Clock,
        *,
        task: str,
        model: str,
        agent: str | None = None,
        budget_usd: Decimal | None = None,
        sandbox: SandboxMode | None = None,
        mail: MailDurability = "process",
    ) -> "SessionDirectory":
        """Create a session of *project* and its directory, which only the user can read. Raises `OSError`."""
        started = clock.now()
        # Ids sort by start time; the random suffix separates sessions started in the same second.
        id_ = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(started))}-{secrets.token_hex(3)}"
        session = cls(
            id=id_,
            project=project,
            task=task,
            model=model,
            started=started,
            agent=agent,
            budget_usd=budget_usd,
            sandbox=sandbox,
            mail=mail,
        )
        session.directory.mkdir(parents=True, mode=0o700)
        _save(session)
        return session

    @classmethod
    def find(cls, name: str) -> "SessionDirectory":
        """Load the session whose id is *name* or begins with it.

        Raises `ConfigInvalid` if no session or several match, or if the record cannot be read.
        """
        sessions = _sessions()
        found = [path for path in sessions if path.name.startswith(name)] if name else []
        if len(found) == 1:
            return _load(found[0])
        if found:
            raise ConfigInvalid("session", f"{len(found)} session ids begin with {name!r}; give more characters")
        newest = "there are no sessions yet; start one with `coterie run`"
        if sessions:
            newest = f"the newest is {sessions[-1].name}"
        raise ConfigInvalid("session", f"no session's id begins with {name!r}; {newest}")

    @classmethod
    def newest(cls, project: Path) -> "SessionDirectory":
        """Load the last created (not resumed) session of *project*. Raises `ConfigInvalid` if none or unreadable."""
        sessions = _sessions(project_slug(project))
        if not sessions:
            raise ConfigInvalid("session", f"{project} has no session yet; start one with `coterie run`")
        return _load(sessions[-1])

    @classmethod
    def resume(
        cls,
        name: str,
        *,
        budget_usd: Decimal | None = None,
        sandbox: SandboxMode | None = None,
        mail: MailDurability | None = None,
    ) -> "SessionDirectory":
        """Load a session like `find`, add 1 to `starts`, and store the options that are given. Raises `OSError` too."""
        session = cls.find(name)
        resumed = attrs.evolve(
            session,
            starts=session.starts + 1,
            budget_usd=session.budget_usd if budget_usd is None else budget_usd,
            sandbox=sandbox or session.sandbox,
            mail=mail or session.mail,
        )
        _save(resumed)
        return resumed

    @property
    def directory(self) -> Path:
        """Directory with the files of the session."""
        return home_directory() / "projects" / project_slug(self.project) / "sessions" / self.id

    @property
    def scratch(self) -> Path:
        """Directory that all agents of the session may read and write; it need not exist."""
        return self.directory / SCRATCH

    def agent_directory(self, name: str) -> Path:
        """Return the directory of the agent *name*, for its transcript; create it if missing. Raises `OSError`."""
        directory = self.directory / "agents" / name
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        return directory


def list_session_ids() -> list[str]:
    """Return the ids of all sessions, oldest first."""
    return [path.name for path in _sessions()]


def project_slug(project: Path) -> str:
    """Return the directory name of a project in `COTERIE_HOME/projects`: its path, with `-` for special characters."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(project.resolve()))


def _save(session: SessionDirectory) -> None:
    facts = {"v": VERSION, **attrs.asdict(session), "project": str(session.project)}
    replace_file(session.directory / SESSION_FILE, msgspec.json.encode(facts) + b"\n")


def _sessions(project: str = "*") -> list[Path]:
    """Return the directories of all sessions, or of the sessions of one project, oldest first."""
    return sorted(home_directory().glob(f"projects/{project}/sessions/*"), key=lambda path: path.name)


def _load(directory: Path) -> SessionDirectory:
    try:
        facts = msgspec.json.decode((directory / SESSION_FILE).read_bytes(), type=dict[str, object])
        session = msgspec.convert(facts, SessionDirectory, dec_hook=lambda kind, value: kind(value))
    except (OSError, ValueError) as exc:
        raise ConfigInvalid(
            str(directory / SESSION_FILE), f"cannot be read: {exc}; repair it, or delete the directory of the session"
        ) from exc
    if facts.get("v") != VERSION:
        raise ConfigInvalid(
            str(directory / SESSION_FILE),
            f"has format version {facts.get('v')}, not {VERSION}; use the version of Coterie that wrote the file",
        )
    return session


EVENT_LOG = "events.jsonl"
TRANSCRIPT = "transcript.jsonl"
ROSTER_FILE = "roster.json"
MAIL_DIRECTORY = "mail"
DEAD_LETTER_DIRECTORY = "dead"
"""Name of the directory for dead letters (messages that could not be delivered), inside the mail directory."""


def mail_directory(session: SessionDirectory) -> Path:
    """Return the directory with the mailboxes of *session*."""
    return session.directory / MAIL_DIRECTORY
