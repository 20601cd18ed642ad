"""One process of an agent: started, served, watched, stopped and reaped by the one task that owns it."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import attrs
import trio

from coterie.agents import permissions
from coterie.agents.control.line import Line, open_line
from coterie.agents.control.words import AgentWord, agent_words
from coterie.agents.errors import ControlLost
from coterie.agents.events import Event, LayerFailed
from coterie.agents.spawning import Spawned, Spawner
from coterie.clock import Clock
from coterie.mailbox.lifecycle import ShutdownRequest
from coterie.orchestrator.approvals.approvals import Approvals
from coterie.orchestrator.approvals.of_agent import AgentApprovals
from coterie.orchestrator.gate import Asker, SessionGate
from coterie.orchestrator.mcp.post import McpPost
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.starting import Child, Start, Starter, StartFailed
from coterie.orchestrator.tree.announcing import Announcer
from coterie.orchestrator.tree.at_work import AtWork
from coterie.orchestrator.tree.charge import ERRORS, Charge
from coterie.orchestrator.tree.desk import Desk
from coterie.orchestrator.tree.duty import ENTRY, Duty
from coterie.orchestrator.tree.failures import first_failure
from coterie.orchestrator.tree.hosting import Guest
from coterie.orchestrator.tree.remains import (
    AGENT_VARIABLE,
    SESSION_VARIABLE,
    agent_tag,
    end_remains,
    remove_unfinished_sync,
)
from coterie.orchestrator.tree.stalling import STALL, Signs, awakenings, wait_for_stall, written
from coterie.orchestrator.tree.stopping import request_to_end, stop
from coterie.orchestrator.tree.tenure import Tenure

OpenLine = AbstractAsyncContextManager[Line[AgentWord]]
LAST_WORDS = 1.0
"""Seconds in which what an agent said before it ended is heard."""


@attrs.define(eq=False, kw_only=True)
class ProcessOwner(AtWork):
    """What the processes of those at work need. Its methods are for tasks of the root, on its main thread."""

    office: PostOffice
    starter: Starter
    gate: SessionGate
    tell: Callable[[Event], None]
    clock: Clock
    approvals: Approvals
    server: str | None = None
    """The URL of the embedded server, where that plays the model."""
    grace: float = 5.0
    """Seconds for each step of stopping: asked, told by SIGTERM, killed."""
    environment: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))
    mcp: McpPost | None = None
    """Who holds the MCP servers; None where there are none."""
    user: permissions.Asker | None = None
    """Who is asked for permissions; None refuses."""
    asks_later: bool = False
    """Whether questions that nobody is there for wait until the user answers from a shell."""
    stall_after: float = STALL
    """Seconds without a sign of life after which an agent at work is stopped, as if it had crashed."""

    @property
    def announcer(self) -> Announcer:
        """Says what becomes of agents."""
        return Announcer(self.office, self.tell)

    async def own(
        self, charge: Charge, tenure: Tenure, asker: Asker, spawner: Spawner, task_status: trio.TaskStatus[Spawned]
    ) -> None:
        """Start the process of *charge* and serve it until it is reaped; *spawner* starts its subagents.

        One that shares its parent's process is a task there, and is served as well. Cancelled, it asks the agent to
        end, waits, terminates it, waits, and kills what is left. Raises `StartFailed`.
        """
        if charge.order.is_shared:
            charge.child = guest = self._start_in_parent(charge)
            await self._attend(charge, tenure, asker, spawner, nullcontext(guest.line), task_status)
            return
        near, far = socket.socketpair()
        async with trio.SocketStream(trio.socket.from_stdlib_socket(near)) as stream:
            with far:
                charge.child = await self._start(charge.duty, far)
            opening = open_line(stream, agent_words)
            await self._attend(charge, tenure, asker, spawner, opening, task_status)

    async def _attend(
        self,
        charge: Charge,
        tenure: Tenure,
        asker: Asker,
        spawner: Spawner,
        opening: OpenLine,
        task_status: trio.TaskStatus[Spawned],
    ) -> None:
        async with trio.open_nursery() as nursery:
            mine = self._approvals_of(charge)
            user = mine if self.user is None and self.asks_later else self.user
            desk = charge.desk = Desk(asker, charge.hear, spawner, user, charge.order.name, mine)
            # Served to its end, also when this is cancelled: it is asked to end over the same socket.
            serving = trio.CancelScope(shield=True)
            is_served = trio.Event()
            child = charge.child
            assert child is not None
            nursery.start_soon(self._serve, charge, opening, serving, is_served)
            nursery.start_soon(self._watch, charge, desk)
            task_status.started(charge.spawned())
            try:
                with charge.patience:
                    await child.ended()
            finally:
                await self._stop(charge, desk, tenure.reason_to_end)
                with trio.move_on_after(LAST_WORDS, shield=True):
                    await is_served.wait()
                serving.cancel()
                nursery.cancel_scope.cancel()

    def _approvals_of(self, charge: Charge) -> AgentApprovals:
        duty = charge.duty
        return AgentApprovals(
            approvals=self.approvals,
            agent=duty.name,
            incarnation=duty.incarnation,
            policy=duty.plan,
            directory=self.office.session.project if duty.directory is None else Path(duty.directory),
        )

    def _start_in_parent(self, charge: Charge) -> Guest:
        parent = self.tenures.get(charge.order.parent or "")
        host = None if parent is None else parent.charge
        if host is None or host.desk is None or host.child is None:
            raise StartFailed("who started it has no process that it could share")
        return host.desk.guests.run(charge.duty, host.child)

    async def _start(self, duty: Duty, control: socket.socket) -> Child:
        directory = self.office.session.agent_directory(duty.name)
        start = Start(
            title=f"coterie {duty.name}",
            entry=ENTRY,
            payload=duty.to_bytes(),
            directory=self.office.session.project,
            environment={
                **self.environment,
                SESSION_VARIABLE: duty.session,
                AGENT_VARIABLE: agent_tag(duty.name, duty.incarnation),
            },
        )
        with (directory / ERRORS).open("ab", buffering=0) as errors:
            return await self.starter.start(start, [control.fileno()], stderr=errors.fileno())

    async def _serve(self, charge: Charge, opening: OpenLine, serving: trio.CancelScope, is_served: trio.Event) -> None:
        assert charge.desk is not None
        assert charge.child is not None
        with serving:
            try:
                async with opening as line:
                    await charge.desk.run(line)
            except* ControlLost as group:
                # It cannot be talked to, so it cannot be asked either.
                self.tell(LayerFailed(layer="control", reason=str(first_failure(group))))
                charge.child.send_signal(signal.SIGKILL)
        is_served.set()

    async def _watch(self, charge: Charge, desk: Desk) -> None:
        """Have an agent stopped of which nothing is heard."""
        await wait_for_stall(lambda: self._signs(charge, desk), self.stall_after)
        charge.stall(self.stall_after)

    def _signs(self, charge: Charge, desk: Desk) -> Signs | None:
        """What an agent at work has come to; None for one that waits, for others or for its turn at the gate."""
        name, child = charge.duty.name, charge.child
        helpers = (tenure for tenure in self.tenures.values() if tenure.order.parent == name)
        at_gate = next(agent for agent in self.gate.standing().agents if agent.name == name)
        is_at_work = charge.state in ("starting", "running") and not desk.is_asking and not at_gate.waiting
        if child is None or not is_at_work or not all(helper.is_idle for helper in helpers):
            return None
        awake = awakenings(child.pid) if at_gate.under_way else None
        return charge.state, charge.words, awake, *written(self.office.session.agent_directory(name))

    async def _stop(self, charge: Charge, desk: Desk, reason: str) -> None:
        """End the process, whatever it takes, and all that it left; returns when it is reaped."""
        assert charge.child is not None
        duty, child = charge.duty, charge.child
        with trio.CancelScope(shield=True):
            if not child.has_ended():
                charge.change("stopping")
                self._ask_to_end(charge, desk, reason)
            await stop(child, self.grace)
            with trio.move_on_after(self.grace):
                await end_remains(duty.session, agent_tag(duty.name, duty.incarnation))
            if isinstance(child, Child) and child.status != 0:
                await self._tidy(duty, child.pid)

    async def _tidy(self, duty: Duty, pid: int) -> None:
        """Remove what a process that was killed had begun to write. What cannot be removed is the doctor's to find."""
        session = self.office.session
        with contextlib.suppress(OSError):
            agent = session.agent_directory(duty.name)
            await trio.to_thread.run_sync(remove_unfinished_sync, session.directory, agent, pid)

    def _ask_to_end(self, charge: Charge, desk: Desk, reason: str) -> None:
        assert charge.child is not None
        if charge.silence is not None:
            # Whoever does not get on does not read its mail either.
            charge.child.send_signal(signal.SIGTERM)
            return
        request = ShutdownRequest(reason=reason, deadline=self.grace)
        with contextlib.suppress(ControlLost):  # then it is told by a signal
            desk.deliver(request_to_end(charge.duty, request, self.announcer.sender, self.clock.now()))
