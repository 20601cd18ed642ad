"""Pinned context: team, tasks and mail, read anew from their source at each compaction."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol
from xml.sax.saxutils import escape

import attrs
import trio

from coterie.agents.events.root_events import AgentChanged
from coterie.agents.layers.layer7_messaging import REPEATED_BYTES, Messaging
from coterie.agents.layers.message_blocks import message_text
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.transcript_records import UnansweredMessage
from coterie.agents.tools.team.task_tools import UNFINISHED, task_line, task_text
from coterie.mailbox.contract import Member, Roster
from coterie.mailbox.envelope import Sender
from coterie.mailbox.roster import RosterFailed
from coterie.mailbox.tasks.errors import TaskError
from coterie.mailbox.tasks.task import ListedTask
from coterie.mailbox.tasks.task_list import TaskList

SHOWN = 50
"""Members, tasks or messages that are told of; of more it is said how many there are."""
DESCRIPTION = 2_000
"""Characters that are told of a task that the agent is at work on."""

LastStates = Callable[[], Mapping[tuple[str, int], AgentChanged]]
"""What the root last told of each start of each agent, by name and incarnation. May block on the disk."""


@attrs.frozen
class TeamSection:
    """Who else is in the session: what each is, who started it, for what, and what it does now."""

    _roster: Roster
    _told: LastStates | None = None
    """None where no root tells of anybody: then the roster alone says what they do."""

    heading: ClassVar[str] = "The team"

    async def text(self, agent: Agent) -> str:
        """A line each for those who can be written to, and one for all whom the agent started and who have ended."""
        name = agent.identity.agent
        try:
            members = [member for member in self._roster.members().values() if member.name != name]
        except RosterFailed as exc:
            raise OSError(str(exc)) from exc
        told = {} if self._told is None else await trio.to_thread.run_sync(self._told)
        present = [_member(member, told) for member in members if member.state != "ended"]
        ended = [m.name for m in members if m.state == "ended" and m.engagement.parent == name]
        lines = _some(present, "agents")
        if ended:
            lines.append(f"Started by you and ended, with reports that came as messages: {', '.join(ended[-SHOWN:])}.")
        return "\n".join(lines)


@attrs.frozen
class TaskSection:
    """What is on the task list and not done, the agent's own first."""

    _tasks: TaskList

    heading: ClassVar[str] = "Open tasks"

    async def text(self, agent: Agent) -> str:
        """A line each; what the agent is at work on, with its description."""
        try:
            found = await self._tasks.list(states=UNFINISHED)
        except TaskError as exc:
            raise OSError(str(exc)) from exc
        own = [task for task in found.tasks if _is_own(task, agent)]
        others = [task for task in found.tasks if not _is_own(task, agent)]
        lines = [*map(_own_task, own), *(f"- {escape(task_line(task))}" for task in others)]
        return "\n".join([*_some(lines, "tasks"), *(f"- {damage}" for damage in found.damaged[:SHOWN])])


@attrs.frozen
class MailSection:
    """What others wrote to the agent, wait for an answer to, and have none."""

    _roster: Roster
    _mail: Messaging
    """Knows who has asked this start of the agent to end."""
    _sender: Sender
    """The agent, when it answers."""

    heading: ClassVar[str] = "Messages that wait for your answer"

    async def text(self, agent: Agent) -> str:
        """Each as it was delivered, cut if it is long; not of those who have ended, who can get no answer."""
        try:
            members = self._roster.members()
        except RosterFailed as exc:
            raise OSError(str(exc)) from exc
        requests = [message_text(envelope, REPEATED_BYTES) for envelope in self._mail.shutdown.requests.values()]
        waiting = [mail.text for mail in agent.open_mail.values() if self._can_be_answered(mail, members)]
        return "\n".join(_some([*requests, *waiting], "messages"))

    def _can_be_answered(self, mail: UnansweredMessage, members: Mapping[str, Member]) -> bool:
        if mail.task is not None or mail.session != self._sender.session:
            return True
        return mail.sender in members and members[mail.sender].state != "ended"


def _member(member: Member, told: Mapping[tuple[str, int], AgentChanged]) -> str:
    about, last = member.engagement, told.get((member.name, member.incarnation))
    state = member.state if last is None or member.state == "idle" else _state(last)
    facts = (
        f"kind {about.kind}" if about.kind else "",
        f"started by {about.parent}" if about.parent else "",
        f"start {member.incarnation}" if member.incarnation > 1 else "",
    )
    known = "; ".join(filter(None, facts))
    task = f" Its task: {escape(about.task)}" if about.task else ""
    return f"- {member.name}{f' ({known})' if known else ''}: {state}.{task}"


def _state(told: AgentChanged) -> str:
    words = told.state.replace("_", " ")
    return f"{words}: {escape(told.what)}" if told.what else words


def _is_own(task: ListedTask, agent: Agent) -> bool:
    return task.owner is not None and task.owner.name == agent.identity.agent


def _own_task(task: ListedTask) -> str:
    text = task_text(task)
    cut = text if len(text) <= DESCRIPTION else f"{text[:DESCRIPTION]}... (TaskList shows all of it)"
    return f"- Yours: {escape(cut)}"


def _some(lines: list[str], what: str) -> list[str]:
    """The first *lines*, and how many more there are."""
    more = len(lines) - SHOWN
    return lines if more <= 0 else [*lines[:SHOWN], f"... and {more} more {what}."]


class PinnedSection(Protocol):
    """One such thing: the team, the open tasks, unanswered mail, instruction files."""

    @property
    def heading(self) -> str:
        """What it is, in a few words, as a heading of the notes and of what is restored after a compaction."""
        ...

    async def text(self, agent: Agent) -> str:
        """How it stands now, in Markdown; empty if there is nothing to say. Raises `OSError`."""
        ...
