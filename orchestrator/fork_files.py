"""Where forks begin, on its way from one process to another: a file in the parent's directory, written once for all."""

from pathlib import Path

from coterie.agents.agent import Agent
from coterie.agents.errors import ConfigInvalid, ToolFailed
from coterie.agents.forks import ForkPoint, PrefixDiffers, read_point, take_point
from coterie.files import replace_file

DIRECTORY = "forks"


def write_fork_file(agent: Agent, directory: Path) -> Path:
    """The file of the point at the end of *agent*'s last reply, below the agent's *directory*.

    Siblings of one turn share it: it is named after its bytes. Raises `ToolFailed`.
    """
    point = take_point(agent)
    path = directory / DIRECTORY / point.hash.hex()
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(path, point.to_bytes(), durable=False, mode=0o600)
        except OSError as exc:
            raise ToolFailed(f"No fork can be started: {exc.strerror}.") from exc
    return path


def read_fork_file(path: Path) -> ForkPoint:
    """The point in *path*. Raises `ConfigInvalid` if it is not there, or not what was written."""
    try:
        with path.open("rb") as file:
            return read_point(file.fileno())
    except (OSError, ValueError, PrefixDiffers) as exc:
        raise ConfigInvalid(str(path), f"no fork can begin there: {exc}") from exc
