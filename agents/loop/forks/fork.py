"""Forks (agents that start with their parent's conversation), and files with the parent's state (fork points)."""

from pathlib import Path

from coterie.agents.errors import ToolFailed
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.forks.fork_point import ForkPoint, ForkRefused, PrefixDiffers
from coterie.agents.prompts import render
from coterie.errors import ConfigInvalid
from coterie.files import replace_file

DIRECTORY = "forks"
_TAG = b'{"type":"text","text":"<fork-directive>'
"""First bytes of the block with a fork's directive (its task); the prompt file `prompts/fork.md` begins like this."""


def create_fork_point(agent: Agent) -> ForkPoint:
    """Return the fork point of *agent*: its conversation up to its last reply, and the state that forks inherit.

    Raises `ForkRefused` for an agent that is a fork itself or has no reply yet.
    """
    conversation = agent.conversation
    if agent.fork_of is not None or is_fork(conversation):
        raise ForkRefused("A fork cannot start forks. Do the work yourself, or report what is not done.")
    indexes = range(len(conversation) - 1, conversation.prefix.prompt_length - 1, -1)
    last = next((index for index in indexes if conversation.prefix[index].role == "assistant"), None)
    if last is None:
        raise ForkRefused("There is nothing to fork yet: a fork begins after your last reply. Fork in a later turn.")
    end = last + 1
    later = [conversation.prefix[index].data for index in range(end, len(conversation))]
    previous = conversation.marks.previous
    return ForkPoint(
        parent=agent.identity.agent,
        prefix=conversation.prefix.cut(end),
        epoch=conversation.epoch,
        previous=previous if previous is not None and previous < end else None,
        tokens=agent.meter.tokens(conversation) - sum(map(estimate_block, later)),
        expected_read=agent.meter.cached(conversation),
        used_at=agent.replied_at,
        ttl=agent.ttl,
        seen=agent.workspace.seen.known(),
        directory=str(agent.workspace.shell.directory.relative_to(agent.workspace.shell.root)),
        words=tuple(agent.user_texts),
        skills=agent.workspace.skills.known(),
    )


def begin_fork(point: ForkPoint, directive: str) -> Conversation:
    """Return the conversation of a new fork: the parent's conversation from *point*, then the task *directive*.

    Forks of one point differ only in this last block; their first request sets a cache marker before it. Raises
    `PrefixDiffers` if the result does not begin with the parent's bytes, which is a bug.
    """
    fork = point.conversation().fork_with(render("fork_placeholder"), f"{render('fork')}\n\n{directive}")
    point.check(fork.prefix)
    return fork


def is_fork(conversation: Conversation) -> bool:
    """True if *conversation* is that of a fork: one of its user blocks is a directive, as `begin_fork` adds it."""
    prefix = conversation.prefix
    indexes = range(prefix.prompt_length, len(prefix))
    return any(prefix[index].role == "user" and prefix[index].data.startswith(_TAG) for index in indexes)


def write_fork_file(agent: Agent, directory: Path) -> Path:
    """Write the fork point of *agent*, as of its last reply, to a file below *directory*; return the path of the file.

    The file is named after the hash of the conversation, so that all forks of one turn share it. Raises `ToolFailed`.
    """
    point = create_fork_point(agent)
    path = directory / DIRECTORY / point.hash.hex()
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(path, point.to_bytes(), durable=False, mode=0o600)
        except OSError as exc:
            raise ToolFailed(f"No fork started: {path} cannot be written ({exc.strerror}). Work without it.") from exc
    return path


def read_fork_file(path: Path) -> ForkPoint:
    """Return the fork point that the file *path* contains. Raises `ConfigInvalid` if the file is missing or damaged."""
    try:
        return ForkPoint.from_bytes(path.read_bytes())
    except (OSError, ValueError, PrefixDiffers) as exc:
        raise ConfigInvalid(str(path), f"the fork point is unusable; start the fork again: {exc}") from exc
