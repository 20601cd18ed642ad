"""An agent's context over days: session notes, compaction, and what must come through every summary."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from coterie.agents.agent import Agent
from coterie.agents.compaction.standings import OpenTasks, Team, UnansweredMail
from coterie.agents.compaction.step import CompactContext
from coterie.agents.layers.notes import KeepNotes, open_notes
from coterie.agents.mcp.listing import Listing, load_listing
from coterie.agents.standing import Standing
from coterie.mailbox.tasks import TaskList
from coterie.memory.compaction.cut import KeepLimits
from coterie.memory.compaction.limits import CompactionLimits
from coterie.memory.notes import NotesLimits
from coterie.orchestrator.agent_memory import AgentMemory
from coterie.orchestrator.agent_skills import AgentSkills
from coterie.orchestrator.first_context import context_text, instructions_of
from coterie.orchestrator.mailroom import Mailroom
from coterie.orchestrator.overview import last_told
from coterie.orchestrator.seat import Seat, Work
from coterie.orchestrator.settings.schema import CompactionSettings


def standings_of(seat: Seat, room: Mailroom, tasks: TaskList) -> Sequence[Standing]:
    """What the agent of *seat* must not forget."""
    roster = room.router.roster
    return (
        Team(roster, partial(last_told, seat.session)),
        OpenTasks(tasks),
        UnansweredMail(roster, room.mail, room.sender),
    )


def compaction_of(
    work: Work,
    seat: Seat,
    room: Mailroom,
    standings: Sequence[Standing],
    memory: AgentMemory,
    skills: AgentSkills,
) -> CompactContext | None:
    """What compacts the context of the agent; None where that is switched off."""
    settings = work.settings.layers.compaction
    if not settings.enabled:
        return None
    return CompactContext(
        limits=_limits(settings),
        standings=standings,
        context=partial(read_context, work, seat, memory, skills),
        mail=room.mail,
    )


@asynccontextmanager
async def notes_kept(
    agent: Agent, work: Work, standings: Sequence[Standing], compact: CompactContext | None
) -> AsyncIterator[KeepNotes | None]:
    """Keep the session notes of *agent* until the block ends, for *compact* to use; none where that is switched off.

    Raises `ConfigInvalid` for a template or a prompt that cannot be used.
    """
    settings = work.settings.layers.notes
    if not settings.enabled:
        yield None
        return
    limits = NotesLimits(
        first=settings.first,
        step=settings.step,
        calls=settings.calls,
        share=settings.share,
        section=settings.section,
        total=settings.total,
    )
    keep = compact.limits.keep if compact is not None and compact.limits.by_notes else None
    files = {"template": settings.template, "prompt": settings.prompt}
    async with open_notes(agent, limits, standings, keep=keep, **files) as notes:
        if compact is not None:
            compact.notes = notes
        yield notes


async def read_context(work: Work, seat: Seat, memory: AgentMemory, skills: AgentSkills) -> str:
    """What the agent is told before its task, with instruction files and the index of its memory as they are now.

    Raises `ConfigInvalid`.
    """
    return await trio.to_thread.run_sync(_context_sync, work, seat, memory, skills)


def _context_sync(work: Work, seat: Seat, memory: AgentMemory, skills: AgentSkills) -> str:
    instructions = instructions_of(work.project) if work.has_instructions else None
    servers = (load_listing(seat.session.directory) or Listing()).words()
    return context_text(work.project, seat.clock, instructions, memory.index_text(), skills.listing, servers)


def _limits(settings: CompactionSettings) -> CompactionLimits:
    return CompactionLimits(
        by_notes=settings.by_notes,
        by_model=settings.by_model,
        keep=KeepLimits(least=settings.keep_least, texts=settings.keep_texts, most=settings.keep_most),
        files=settings.files,
        file=settings.file,
        files_total=settings.files_total,
        skill=settings.skill,
        skills_total=settings.skills_total,
        failures=settings.failures,
    )
