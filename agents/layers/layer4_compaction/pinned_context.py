"""Pinned context: text about team, tasks and mail, which each compaction reads anew and never summarises."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol
from xml.sax.saxutils import escape

import attrs
import trio

from coterie.agents.events.root_events import AgentChanged
from coterie.agents.layers.layer7_messaging import REPEATED_BYTES, Messaging
from coterie.agents.layers.message_blocks import message_text
from coterie.agents.loop.agent import Agent
from coterie.agents.tools.team.task_tools import UNFINISHED, task_line, task_text
from coterie.mailbox.contract import Member, Roster
from coterie.mailbox.envelope import Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.tasks.task_list import TaskList

SHOWN = 50
"""Maximum number of agents, tasks or messages that a section of the pinned context lists; others are only counted."""
DESCRIPTION = 2_000
"""Maximum number of characters, including the description, shown of each task that the agent owns."""


@attrs.frozen
class TeamSection:
    """Section of the pinned context that lists the session's other agents: type, parent, state and task of each."""

    _roster: Roster
    _last_states: Callable[[], Mapping[tuple[str, int], AgentChanged]] | None = None
    """Function that reads the last state event of each agent, by name and incarnation (start number); may block.

    None if no root (supervisor process) writes such events; then the states are those of the roster (list of agents).
    """

    heading: ClassVar[str] = "The team"

    async def text(self, agent: Agent) -> str:
        """Return a line for each other agent that has not ended, and one line for ended ones that *agent* started."""
        name = agent.identity.agent
        members = [member for member in self._roster.members().values() if member.name != name]
        states = {} if self._last_states is None else await trio.to_thread.run_sync(self._last_states)
        present = [_member(member, states) for member in members if member.state != "ended"]
        ended = [m.name for m in members if m.state == "ended" and m.engagement.parent == name]
        lines = _some(present, "agents")
        if ended:
            lines.append(f"Started by you and ended, with reports that came as messages: {', '.join(ended[-SHOWN:])}.")
        return "\n".join(lines)


@attrs.frozen
class TaskSection:
    """Section of the pinned context with the session's unfinished tasks; tasks that the agent owns come first."""

    _tasks: TaskList

    heading: ClassVar[str] = "Open tasks"

    async def text(self, agent: Agent) -> str:
        """Return a line for each unfinished task; tasks of *agent* also have their description, cut if it is long."""
        found = await self._tasks.list(states=UNFINISHED)
        own, others = [], []
        for task in found.tasks:
            if task.owner is None or task.owner.name != agent.identity.agent:
                others.append(f"- {escape(task_line(task))}")
                continue
            text = task_text(task)
            cut = text if len(text) <= DESCRIPTION else f"{text[:DESCRIPTION]}... (TaskList shows all of it)"
            own.append(f"- Yours: {escape(cut)}")
        return "\n".join([*_some([*own, *others], "tasks"), *(f"- {damage}" for damage in found.damaged[:SHOWN])])


@attrs.frozen
class MailSection:
    """Section of the pinned context with messages and shutdown requests that the agent has not answered yet."""

    _roster: Roster
    _mail: Messaging
    """Messaging step of the agent, which stores the shutdown requests that the agent has received."""
    _sender: Sender
    """The agent as a sender; its session id tells messages of this session from those of other sessions."""

    heading: ClassVar[str] = "Messages that wait for your answer"

    async def text(self, agent: Agent) -> str:
        """Return the messages without answer, cut if long; from this session's ended agents only task assignments."""
        running = {name for name, member in self._roster.members().items() if member.state != "ended"}
        requests = [message_text(envelope, REPEATED_BYTES) for envelope in self._mail.shutdown.requests.values()]
        waiting = [
            mail.text
            for mail in agent.open_mail.values()
            if mail.task is not None or mail.session != self._sender.session or mail.sender in running
        ]
        return "\n".join(_some([*requests, *waiting], "messages"))


def _member(member: Member, states: Mapping[tuple[str, int], AgentChanged]) -> str:
    about, last = member.engagement, states.get((member.name, member.incarnation))
    state: str = member.state
    if last is not None and member.state != "idle":
        state = last.state.replace("_", " ") + (f": {escape(last.what)}" if last.what else "")
    facts = (
        f"kind {about.kind}" if about.kind else "",
        f"started by {about.parent}" if about.parent else "",
        f"start {member.incarnation}" if member.incarnation > 1 else "",
    )
    known = "; ".join(filter(None, facts))
    task = f" Its task: {escape(about.task)}" if about.task else ""
    return f"- {member.name}{f' ({known})' if known else ''}: {state}.{task}"


def _some(lines: list[str], what: str) -> list[str]:
    """Return *lines*; if there are more than `SHOWN`, the first ones and a line with the number of omitted *what*."""
    more = len(lines) - SHOWN
    return lines if more <= 0 else [*lines[:SHOWN], f"... and {more} more {what}."]


class PinnedSection(Protocol):
    """Section of the pinned context (state that a compaction reads anew): team, tasks, or unanswered mail."""

    @property
    def heading(self) -> str:
        """Heading of the section, in the session notes file and in the conversation after a compaction."""

    async def text(self, agent: Agent) -> str:
        """Return the section's current content as lines of Markdown; may be empty. Raises `OSError`, `MailboxError`."""


async def section_text(section: PinnedSection, agent: Agent, layer: str) -> str:
    """Return the current text of *section*; if it cannot be read, emit a failure of *layer* and return no text."""
    try:
        return await section.text(agent)
    except (OSError, MailboxError) as exc:
        agent.report_failure(layer, f"{section.heading}: {exc}")
        return ""
