"""One agent over its restarts, and the restart policy."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.root_link.job_messages import CompactionDone, NotCompacted, Pivot
from coterie.agents.root_link.messages import ExpectReport, StopWaiting
from coterie.agents.root_link.spawn_request import FORK, Isolation, Spawner, SpawnRefused, SpawnRequest
from coterie.agents.runtime.agent_spec import AgentSpec, AgentWorkspace
from coterie.agents.runtime.task_report import release_tasks
from coterie.agents.runtime.worktree import WORK_NOT_CHECKED, Worktree, describe_work
from coterie.errors import AgentError
from coterie.mailbox.contract import MemberOrigin
from coterie.mailbox.envelope import Envelope, MessageId, new_message_id
from coterie.mailbox.tasks.task import TaskOwner
from coterie.mailbox.tasks.task_list import TaskList
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.supervisor.agent_connection import AgentConnection
from coterie.orchestrator.supervisor.agent_process import AgentProcess
from coterie.orchestrator.supervisor.agent_status import PROCESS_ENDS, AgentOutcome
from coterie.orchestrator.supervisor.recovery import UnfinishedAgent, UnfinishedAgents
from coterie.orchestrator.supervisor.root_services import RootServices
from coterie.orchestrator.supervisor.worktree_lifecycle import WorktreeFailed, open_worktree, release_worktree
from coterie.session_directory import MAIN, TASKS, SessionDirectory
from coterie.suggestions import did_you_mean

FINISH_TIMEOUT = 5.0
"""Seconds for each step that publishes the end of an agent."""
TASK_LINE_LENGTH = 200
"""Maximum characters of a task on the roster."""
NO_PROCESS = "it has no process now; a message starts it again"


@attrs.frozen(kw_only=True)
class RestartPolicy:
    """Number of crashes of an agent's process that one task survives."""

    limit: int = 2
    first_wait: float = 0.5
    """Seconds before the first restart; doubled before each further one."""

    def wait_after(self, crashes: int) -> float | None:
        """Seconds to wait after so many crashes; None if there is no further restart."""
        return None if crashes > self.limit else self.first_wait * 2 ** (crashes - 1)


NO_RESTARTS = RestartPolicy(limit=0)


@attrs.define(eq=False)
class NotRunning(AgentError):
    """No agent of this name runs."""

    name: str
    running: tuple[str, ...]
    """Names of the running agents."""

    def __str__(self) -> str:
        return f"{self.name!r} is not running; {did_you_mean(self.name, self.running)}"


@attrs.define(eq=False, kw_only=True)
class AgentRun:
    """One agent over its restarts, including the time in which it waits for a message without a process."""

    spec: AgentSpec
    """Spec of the first task; each start has its own, see `AgentProcess.spec`."""
    budget: Decimal | None = None
    """Maximum dollars of the agent with its descendants; None for no limit of its own."""
    isolation: Isolation | None = None
    """Kind of workspace of its own; None to share the parent's directory."""
    is_in_process: bool = False
    """True for a task in the process of its parent."""
    is_kept: bool = False
    """True if a later message starts the agent again."""
    is_resumed: bool = False
    """True if an earlier root had started the agent."""
    team: tuple[SpawnRequest, ...] = ()
    """Agents that the root spawns for this one once it is ready."""
    request: SpawnRequest | None = None
    """Request of the parent; None for the lead, which the user starts."""
    outcome: AgentOutcome | None = None
    """Outcome of the latest process, also under an earlier root; None before the first outcome of a task."""
    workspace: AgentWorkspace = attrs.field(
        default=attrs.Factory(lambda run: run.spec.workspace, takes_self=True), init=False
    )
    """Workspace of the latest start."""
    report: MessageId = attrs.field(default=attrs.Factory(lambda run: run.spec.report, takes_self=True), init=False)
    """Id of the report of the current task, the same for each incarnation."""
    process: AgentProcess | None = attrs.field(default=None, init=False)
    """Latest process of the current task; None before the first."""
    children: Spawner | None = attrs.field(default=None, init=False)
    """Spawner of the agent's children at the current task; None before the first task."""
    cancel_scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Scope of the run: cancellation stops the agent and its children."""
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the run has ended and is no longer registered."""
    stopped_by: str | None = attrs.field(default=None, init=False)
    """Name of the first agent that stopped it, or "the user"."""
    crash_count: int = attrs.field(default=0, init=False)
    """Crashes at the current task."""
    pending_spawns: int = attrs.field(default=0, init=False)
    """Number of pending spawns that the agent did not request: of its team, or by the user."""
    _restarts: RestartPolicy = attrs.field(default=NO_RESTARTS, init=False)
    _is_task_recorded: bool = attrs.field(default=False, init=False)
    """True once the transcript has the task."""

    @property
    def name(self) -> str:
        """Name of the agent."""
        return self.spec.name

    @property
    def member_origin(self) -> MemberOrigin | None:
        """Origin of the agent for the roster; None for an offline job, which leaves the earlier one."""
        spec = self.spec
        if spec.job is not None:
            return None
        task = " ".join(spec.task.split())
        line = task if len(task) <= TASK_LINE_LENGTH else f"{task[:TASK_LINE_LENGTH]}..."
        return MemberOrigin(kind=spec.definition if spec.fork is None else FORK, parent=spec.parent, task=line)

    @property
    def task(self) -> str:
        """Task for the next start; empty once it is in the transcript."""
        return "" if self._is_task_recorded else self.spec.task

    @property
    def is_done(self) -> bool:
        """True if the latest process has ended well."""
        return self.outcome is not None and self.outcome.end == "done"

    @property
    def is_idle(self) -> bool:
        """True if the agent waits for messages, with a process or without."""
        if self.process is None:
            return self.outcome is not None
        return self.process.state in ("idle", "done")

    @property
    def is_ready(self) -> bool:
        """True if the agent has a process that can be the parent of others."""
        return self.process is not None and self.process.is_ready

    @property
    def shutdown_reason(self) -> str:
        """Reason that a shutdown request gives."""
        return f"{self.stopped_by} stopped it" if self.stopped_by else "the session or its parent has ended"

    @contextlib.contextmanager
    def spawning(self, notify: Callable[[], None]) -> Iterator[None]:
        """Count a spawn for the agent within the block, so that its children are not idle; *notify* at the end."""
        self.pending_spawns += 1
        try:
            yield
        finally:
            self.pending_spawns -= 1
            notify()

    def begin_task(self, restarts: RestartPolicy, children: Spawner) -> None:
        """Begin the first task or, after an outcome, the task of a new message."""
        if self.outcome is not None:
            self.report = new_message_id()
            self._is_task_recorded = True
        self.outcome = self.process = None
        self.crash_count = 0
        self._restarts, self.children = restarts, children

    async def open_workspace(self, session: SessionDirectory) -> None:
        """Open the agent's worktree if it needs one: the earlier one, or a new one. Raises `StartFailed`."""
        if self.isolation is None:
            return
        origin = self.spec.workspace.directory or session.project
        try:
            worktree = await open_worktree(session, self.name, origin)
        except WorktreeFailed as exc:
            raise StartFailed(str(exc)) from exc
        self.workspace = AgentWorkspace(directory=worktree.directory, worktree=worktree)

    def begin_process(self, process: AgentProcess) -> None:
        """Record *process* as the next start of the agent, and publish its state."""
        self.process = process
        again = self.outcome and f"again, {self.crash_count} of {self._restarts.limit}: {self.outcome.summary}"
        process.set_state("starting", again or "")

    def end_process(self, process: AgentProcess) -> float | None:
        """Record the outcome of the reaped *process*; return the seconds before a restart, None for no restart."""
        self.outcome = process.outcome()
        # The task is recorded before the first model call. After an earlier crash it is sent again, because a repeated
        # task is better than a lost one.
        self._is_task_recorded = self._is_task_recorded or process.has_called_model
        if self.is_done or process.is_end_final:
            return None
        self.crash_count += 1
        wait = self._restarts.wait_after(self.crash_count)
        if wait is not None:
            process.set_state(self.outcome.end, self.outcome.summary)
        elif self.crash_count > 1:
            self.explain(f"It was started {self.crash_count} times.")
        return wait

    def explain(self, why: str) -> None:
        """Add the sentence *why* to the outcome, if there is one."""
        if self.outcome is not None:
            self.outcome = attrs.evolve(self.outcome, why=f"{why} {self.outcome.why}".rstrip())

    async def stop(self, by: str) -> None:
        """Stop the agent and its children, and return when all have ended; the first *by* is reported."""
        self.stopped_by = self.stopped_by or by
        self.cancel_scope.cancel()
        await self.ended.wait()

    def request_shutdown(self, request: Envelope) -> None:
        """Deliver *request* to the incarnation that it is for. Raises `SpawnRefused`."""
        process = self.process
        if process is None or process.connection is None or process.state in PROCESS_ENDS:
            raise SpawnRefused(f"{self.name} has no process to stop; a message would start it again")
        requested, current = request.recipient.incarnation, process.spec.incarnation.number
        if current != requested:
            raise SpawnRefused(f"the request is for start {requested} of {self.name}, but start {current} is running")
        try:
            process.connection.deliver(request)
        except ControlLost as exc:
            raise SpawnRefused(f"{self.name} did not receive the request: {exc}") from exc

    def notify(self, message: ExpectReport | StopWaiting) -> None:
        """Tell the agent which report to expect, or for which child to stop waiting. No-op without a connection."""
        if (connection := self._connection) is not None:
            # An agent that has ended does not wait; a later incarnation gets the expected reports with its spec.
            with contextlib.suppress(ControlLost):
                connection.send(message)

    async def compact(self, pivot: Pivot | None) -> CompactionDone | NotCompacted:
        """Request a compaction of the agent's conversation and wait for the result."""
        if (connection := self._connection) is not None:
            with contextlib.suppress(ControlLost):
                return await connection.compact(pivot)
        return NotCompacted(reason=NO_PROCESS)

    @property
    def _connection(self) -> AgentConnection | None:
        return None if self.process is None else self.process.connection

    @property
    def recovery_record(self) -> UnfinishedAgent | None:
        """Record of the current task for the next root; None for the lead, which the user starts."""
        if self.request is None or self.spec.parent is None:
            return None
        return UnfinishedAgent(name=self.name, parent=self.spec.parent, request=self.request, report=self.report)

    async def finish_task(self, services: RootServices, unfinished: UnfinishedAgents, *, keeps_worktree: bool) -> None:
        """Publish the outcome of the task; report it to the parent if the agent could not.

        The worktree is removed if it holds no unsaved work, unless *keeps_worktree*. Each step is shielded from
        cancellation and has a deadline.
        """
        if self.stopped_by is not None:
            self.explain(f"{self.stopped_by[:1].upper()}{self.stopped_by[1:]} stopped it.")
        is_kept = self.is_kept and self.is_done and self.stopped_by is None
        if self.process is not None:
            worktree = self.process.spec.workspace.worktree
            left = "" if worktree is None else await _release_worktree(worktree, keeps_worktree=keeps_worktree)
            await self._publish_end(self.process, services, left, is_kept=is_kept)
        if (record := self.recovery_record) is not None:
            with trio.move_on_after(FINISH_TIMEOUT, shield=True):
                # Last: after a crash the task is repeated, and a duplicate report is ignored.
                await unfinished.end(record, is_kept=is_kept)

    async def _publish_end(self, process: AgentProcess, services: RootServices, left: str, *, is_kept: bool) -> None:
        """Publish the end of *process*; *left* is a sentence about the work in its worktree."""
        spec = process.spec
        with trio.move_on_after(FINISH_TIMEOUT, shield=True):
            if self.outcome is not None and not self.is_done:
                await services.status.report(spec, self.outcome, left)
                if (tasks := services.mail.session.directory / TASKS).exists():
                    owner = TaskOwner(name=spec.name, incarnation=spec.incarnation.number)
                    await release_tasks(TaskList(tasks, services.clock), owner, services.emit)
            # Before the event, so that its readers can send messages to a kept agent.
            await services.status.set_state(spec.name, "idle" if is_kept else "ended")
        if self.outcome is None:
            process.set_state("failed", "It could not be started.")
        else:
            process.set_state(self.outcome.end, self.outcome.summary)


def descendants(runs: Mapping[str, AgentRun], name: str) -> list[AgentRun]:
    """Return those of *runs* whose agents are descendants of *name*."""
    own = [run for run in runs.values() if run.spec.parent == name]
    return own + [below for child in own for below in descendants(runs, child.name)]


async def _release_worktree(worktree: Worktree, *, keeps_worktree: bool) -> str:
    """Remove the *worktree* of an ended agent unless it holds unsaved work; return a sentence about its state.

    Shielded, with a deadline; the doctor removes a worktree that remains.
    """
    left = describe_work(worktree, WORK_NOT_CHECKED)
    if keeps_worktree:
        return left
    with trio.move_on_after(FINISH_TIMEOUT, shield=True):
        try:
            left = await release_worktree(worktree)
        except OSError as exc:
            left = describe_work(worktree, f"it could not be removed, {exc}")
    return left


class AgentRuns(dict[str, AgentRun]):
    """Runs of a session by name, also of agents that wait without a process for a message."""

    def find(self, name: str) -> AgentRun:
        """Return the run of *name*. Raises `NotRunning`."""
        if name not in self:
            raise NotRunning(name, tuple(self))
        return self[name]

    def move_to_background(self, name: str, why: str = "") -> None:
        """Tell the parent of *name* to stop waiting for it; the report will come as mail. Raises `NotRunning`."""
        parent = self.get(self.find(name).spec.parent or "")
        if parent is not None:
            parent.notify(StopWaiting(name=name, why=why))

    def wake_lead(self, name: str) -> None:
        """Interrupt the lead's wait for *name* or for an ancestor of *name*, so that the lead reads its mail."""
        while (run := self.get(name)) is not None and run.spec.parent is not None:
            if run.spec.parent == MAIN:
                self.move_to_background(name, "a plan waits for your answer")
            name = run.spec.parent
