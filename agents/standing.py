"""What an agent must not forget, whoever summarises: it is read anew from where it is kept, never from a summary."""

from typing import Protocol

from coterie.agents.agent import Agent


class Standing(Protocol):
    """One such thing: the team, the open tasks, unanswered mail, instruction files."""

    @property
    def heading(self) -> str:
        """What it is, in a few words, as a heading of the notes and of what is restored after a compaction."""
        ...

    async def text(self, agent: Agent) -> str:
        """How it stands now, in Markdown; empty if there is nothing to say. Raises `OSError`."""
        ...
