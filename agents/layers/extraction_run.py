"""One extraction: a helper with its agent's prefix sees which memories there are, and writes what is worth keeping."""

import time
from collections.abc import Sequence
from decimal import Decimal
from xml.sax.saxutils import escape

import attrs
import trio

from coterie.agents.agent import Agent, Answer
from coterie.agents.events import MemoryChanged
from coterie.agents.forks import HelperStart, ask_helper
from coterie.agents.model.reply import Reply
from coterie.agents.permissions.helper_rights import HelperRights
from coterie.agents.prompt import render
from coterie.agents.tools.memory_files import OpenMemory
from coterie.memory.recall.scan import scan
from coterie.memory.store.change import Author, Change
from coterie.memory.store.index import INDEX
from coterie.memory.store.store import Store

PURPOSE = "extraction"
WELL = frozenset({"end_turn", "tool_use", "stop_sequence"})
"""Stop reasons of a reply that says all it wanted to."""


@attrs.define(eq=False)
class Taken:
    """What a helper has done so far, and what that cost."""

    _agent: Agent
    cost: Decimal = Decimal(0)
    replies: int = 0
    changes: list[Change] = attrs.field(factory=list)
    failure: str | None = None
    """Of the last reply that wrote anything: why a memory could not be written, or None."""

    def take(self, reply: Reply, answers: Sequence[Answer]) -> bool:
        """Count *reply*; true once it has written all it wanted to."""
        self.replies += 1
        self.cost += self._agent.model.cost(reply.usage)
        written = [answer.result for answer in answers if answer.call["name"] in HelperRights.writing]
        failed = [result.text.partition("\n")[0] for result in written if result.is_error]
        if written:
            self.failure = failed[-1] if failed else None
        return bool(written) and not failed

    def changed(self, change: Change) -> None:
        """Keep in mind, and tell, what was done to a memory."""
        self.changes.append(change)
        self._agent.tell(MemoryChanged(path=change.path, change=change.id, action=change.action, by="extraction"))

    @property
    def saved(self) -> list[str]:
        """The memories that were written, each once."""
        return list(dict.fromkeys(change.path for change in self.changes if change.path != INDEX))


@attrs.frozen(kw_only=True)
class Extractor:
    """Takes memories from the conversation of one agent into one store."""

    store: Store
    turns: int
    rights: HelperRights

    async def extract(self, agent: Agent, start: HelperStart, count: int, author: Author, taken: Taken) -> str | None:
        """Let a helper look at the last *count* messages of *start*; returns what went wrong, if anything did.

        What it has written by then stays when it is cancelled. Raises as `ask_helper` does, and `OSError`.
        """
        manifest = await trio.to_thread.run_sync(_manifest, self.store)
        facts = {"count": f"{count:,}", "directory": str(self.store.directory), "manifest": manifest}
        date = time.strftime("%Y-%m-%d", time.localtime(agent.clock.now()))
        memory = OpenMemory(stores=(self.store,), author=lambda: author, tell=taken.changed)
        reply = await ask_helper(
            agent,
            render("extraction", **facts, date=date, turns=str(self.turns)),
            PURPOSE,
            max_turns=self.turns,
            denial=self.rights.denial,
            start=attrs.evolve(start, memory=memory),
            until=taken.take,
        )
        if taken.failure is not None:
            return f"a memory could not be written: {taken.failure}"
        if reply.tool_calls and taken.replies == self.turns:  # these were not made any more
            return f"it was not done after {self.turns} replies"
        return None if reply.stop_reason in WELL else f"the model ended with {reply.stop_reason}"


def _manifest(store: Store) -> str:
    return "\n".join(escape(scanned.line) for scanned in scan(store.directory)) or "(none yet)"
