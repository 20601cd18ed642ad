"""Session on disk: its directory, its record, and the names of its files."""

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
"""The one that holds more stands later."""
# Written out, because what they are of brings trio along, which a mistake in a file should not wait for.
MailDurability = Literal["process", "power"]

VERSION = 1
SESSION_FILE = "session.json"
MAIN = "main"
"""The name of the agent that the user talks to."""
COORDINATOR = "coordinator"
"""The kind of a lead that only delegates."""
TASKS = "tasks"
"""The directory of the task list, in that of a session."""
SCRATCH = "scratch"
"""The directory that its agents share."""


@attrs.frozen(kw_only=True)
class SessionDirectory:
    """One run and what it began with; `session.json` in its directory holds all of it."""

    id: str
    project: Path
    """The directory its agents work in."""
    task: str
    model: str
    started: float
    starts: int = 1
    """How often it was started or resumed: the incarnation of its agents."""
    agent: str | None = None
    """The definition of its main agent, if it has one."""
    budget_usd: Decimal | None = None
    """What all of its agents may spend together, over all starts; None for no limit."""
    sandbox: SandboxMode | None = None
    """The one that its user gave on the command line: it holds for all starts. None leaves it to the settings."""
    mail: MailDurability = "process"
    """What a stored message survives: also whoever writes from a shell must know."""

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
        """Make the directory of a new session of *project*, readable by its owner alone. Raises `OSError`."""
        started = clock.now()
        # Sorts by start; the tail keeps two starts in one second apart.
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
        """The session whose id is, or begins with, *name*.

        Raises `ConfigInvalid` if there is none, or more than one, or it cannot be read.
        """
        return _load(_find(name))

    @classmethod
    def newest(cls, project: Path) -> "SessionDirectory":
        """The session of *project* that was begun last. Raises `ConfigInvalid` as `find` does."""
        sessions = _sessions(project_slug(project))
        if not sessions:
            raise ConfigInvalid("session", f"there is none of {project} yet; `coterie run` makes one")
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
        """Like `find`, with its starts counted up; what is given replaces what it has. Raises `OSError` too."""
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
        """Where its files are."""
        return home_directory() / "projects" / project_slug(self.project) / "sessions" / self.id

    @property
    def scratch(self) -> Path:
        """What all of its agents may read and write; it need not exist."""
        return self.directory / SCRATCH

    def agent_directory(self, name: str) -> Path:
        """Where the agent *name* keeps its transcript; made when it is first asked for. Raises `OSError`."""
        directory = self.directory / "agents" / name
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        return directory


def list_session_ids() -> list[str]:
    """The ids of all sessions, the oldest first."""
    return [path.name for path in _sessions()]


def project_slug(project: Path) -> str:
    """A project's path as a file name."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(project.resolve()))


def _save(session: SessionDirectory) -> None:
    facts = {"v": VERSION, **attrs.asdict(session), "project": str(session.project)}
    replace_file(session.directory / SESSION_FILE, msgspec.json.encode(facts) + b"\n")


def _sessions(project: str = "*") -> list[Path]:
    """The directories of all sessions, or of those of one project; the newest is last."""
    return sorted(home_directory().glob(f"projects/{project}/sessions/*"), key=lambda path: path.name)


def _find(name: str) -> Path:
    sessions = _sessions()
    found = [path for path in sessions if path.name.startswith(name)] if name else []
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigInvalid("session", f"{name!r} begins the ids of {len(found)} sessions; give more of it")
    newest = f"the newest is {sessions[-1].name}" if sessions else "there are none yet; `coterie run` makes one"
    raise ConfigInvalid("session", f"no session's id begins with {name!r}; {newest}")


def _load(directory: Path) -> SessionDirectory:
    try:
        facts = msgspec.json.decode((directory / SESSION_FILE).read_bytes(), type=dict[str, object])
        session = msgspec.convert(facts, SessionDirectory, dec_hook=lambda kind, value: kind(value))
    except (OSError, ValueError) as exc:
        raise ConfigInvalid(str(directory / SESSION_FILE), f"cannot be read: {exc}") from exc
    if facts.get("v") != VERSION:
        raise ConfigInvalid(
            str(directory / SESSION_FILE), f"is of version {facts.get('v')}; this program reads {VERSION}"
        )
    return session


EVENT_LOG = "events.jsonl"
TRANSCRIPT = "transcript.jsonl"
ROSTER_FILE = "roster.json"
MAIL_DIRECTORY = "mail"
DEAD_LETTER_DIRECTORY = "dead"
"""Within the mail."""


def mail_directory(session: SessionDirectory) -> Path:
    """The directory with the mailboxes of *session*."""
    return session.directory / MAIL_DIRECTORY
