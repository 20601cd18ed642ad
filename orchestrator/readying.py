"""An agent is made ready to work: what a run needs is put together around a client and the agent's mail.

Importing this module imports the SDK.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from coterie.agents.agent import Agent
from coterie.agents.compaction.by_hand import CompactByHand, with_compaction_by_hand
from coterie.agents.compaction.step import CompactContext
from coterie.agents.control.station import Station
from coterie.agents.layers.recall import Recall
from coterie.agents.lifecycle.releasing import tasks_released
from coterie.agents.mcp.calling import McpCaller
from coterie.agents.mcp.tool import mcp_tools
from coterie.agents.model.client import ModelClient
from coterie.agents.permissions import Asker, Authority
from coterie.agents.tools.jobs import open_jobs
from coterie.agents.tools.tool import JOBS_DIRECTORY
from coterie.mailbox.tasks import Owner, TaskList
from coterie.orchestrator.assembly import tools_of
from coterie.orchestrator.fork_files import write_fork_file
from coterie.orchestrator.hooks.fitting import FittedHooks, fitted_hooks
from coterie.orchestrator.keeping_context import compaction_of, notes_kept, standings_of
from coterie.orchestrator.keeping_memory import memory_kept
from coterie.orchestrator.keeping_warm import open_keeper
from coterie.orchestrator.keeping_watch import progress_told
from coterie.orchestrator.mailroom import Mailroom
from coterie.orchestrator.making import Outfit, make_agent
from coterie.orchestrator.own_tools import own_tools, starting_tool
from coterie.orchestrator.provisions import Provisions, provisions_of
from coterie.orchestrator.run_events import decided
from coterie.orchestrator.sandboxing import open_sandbox
from coterie.orchestrator.seat import Seat, Work
from coterie.orchestrator.session import TASKS
from coterie.orchestrator.taking_up import TakeUp
from coterie.orchestrator.worker import Worker


@asynccontextmanager
async def open_worker(
    work: Work,
    seat: Seat,
    room: Mailroom,
    client: ModelClient,
    station: Station,
    caller: McpCaller,
    *,
    asker: Asker | None = None,
) -> AsyncIterator[Worker]:
    """The agent of *seat*, made for *work*, or as its transcript left it.

    Leaving the block ends what the agent left running, and gives its tasks back. Raises `ConfigInvalid` and `OSError`.
    """
    found = await trio.to_thread.run_sync(provisions_of, work, seat)
    tasks = TaskList(seat.session.directory / TASKS, seat.clock)
    authority = Authority(found.permissions, asker, lambda decision: seat.log.tell(decided(decision)))
    starting = starting_tool(work, found, room, station)
    own = own_tools(work, seat, found, starting, authority, station)
    hooks = await trio.to_thread.run_sync(fitted_hooks, work, seat, authority)
    shared = hooks.fit_tools(tools_of(room, tasks, seat.transcript.path))
    memory, skills = found.memory, found.skills
    async with (
        tasks_released(tasks, Owner(name=seat.name, incarnation=room.sender.incarnation), seat.log.tell),
        open_sandbox(work, seat, [*skills.directories, *(place.directory for place in memory.places)]) as sandbox,
        open_jobs(seat.directory / JOBS_DIRECTORY) as jobs,
    ):
        standings = standings_of(seat, room, tasks)
        compact = compaction_of(work, seat, room, standings, memory, skills)
        outfit = Outfit(
            tools={**shared, **own, **mcp_tools(found.listing.tools, caller)},
            authority=authority,
            jobs=jobs,
            compact=compact,
            point=found.point,
            memory=memory,
            readable=skills.directories,
            sandbox=sandbox,
        )
        agent = make_agent(work, seat, room, client, outfit)
        hooks.fit(agent, authority, room, compact)
        async with (
            open_keeper(agent) as keeper,
            notes_kept(agent, work, standings, compact) as notes,
            memory_kept(agent, work, memory, authority, compact) as kept,
            progress_told(agent, work, station.gate),
        ):
            starting.fork_point = partial(write_fork_file, agent, seat.directory)
            starting.waiting = keeper.waiting
            by_hand = _compacting_by_hand(agent, compact, station)
            station.release, station.expect = starting.release, starting.pending.add
            yield Worker(
                work=work,
                seat=seat,
                agent=agent,
                room=room,
                starting=starting,
                keeper=keeper,
                station=station,
                take_up=_take_up(work, seat, found, room, hooks, kept.recall),
                by_hand=by_hand,
                notes=notes,
                memory=kept,
                hooks=hooks,
            )


def _compacting_by_hand(agent: Agent, compact: CompactContext | None, station: Station) -> CompactByHand:
    """Let *agent* be compacted whenever the root asks for it at *station*."""
    by_hand = CompactByHand(compact, station.say)
    agent.pipeline = with_compaction_by_hand(agent.pipeline, by_hand)
    station.compact = by_hand.ask
    return by_hand


def _take_up(
    work: Work, seat: Seat, found: Provisions, room: Mailroom, hooks: FittedHooks, recall: Recall | None
) -> TakeUp:
    return TakeUp(
        work=work,
        instructions=found.instructions,
        memory=found.memory,
        skills=found.skills,
        servers=found.listing.words(),
        recall=recall,
        mail=room.mail,
        hooks=hooks,
        scratch=seat.session.scratch if work.is_in_team else None,
        at_work=tuple(spawned.name for spawned in found.unheard),
    )
