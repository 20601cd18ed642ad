"""Sessions and transcripts that a dream reads."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from coterie.clock import Clock
from coterie.memory.dreaming.due_check import SessionActivity
from coterie.memory.dreaming.evidence import ReferenceExists

AGENTS = "agents"
TRANSCRIPT = "transcript.jsonl"


def recent_sessions(directory: Path, clock: Clock, but: str | None = None) -> list[SessionActivity]:
    """Find the sessions in *directory* that have a transcript, except the one named *but*. Blocks on the disk."""
    found = []
    for session in directory.glob("*/"):
        times = [path.stat().st_mtime for path in session.glob(f"{AGENTS}/*/{TRANSCRIPT}")]
        if times and session.name != but:
            # File times come from the system clock; add the offset of the session's clock.
            found.append(SessionActivity(directory=session, at=max(times) + clock.offset))
    return found


def transcript_directory(session: Path) -> Path:
    """Return the directory of *session* with one directory for each agent's transcript."""
    return session / AGENTS


def lines_of(sessions: Sequence[Path]) -> ReferenceExists:
    """Return a function that checks if a transcript line exists in *sessions*; it reads each file once. Blocks."""
    by_name = {session.name: session for session in sessions}

    def count(session: str, agent: str) -> int:
        if session not in by_name or agent in (".", ".."):
            return 0
        path = by_name[session] / AGENTS / agent / TRANSCRIPT
        try:
            with path.open("rb") as file:
                return sum(1 for _ in file)
        except OSError:
            return 0

    counted: Callable[[str, str], int] = lru_cache(maxsize=256)(count)
    return lambda session, agent, line: 0 < line <= counted(session, agent)
