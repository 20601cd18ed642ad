"""One agent over all starts of its process, and the restart policy."""

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
"""Maximum seconds for each step after the end of an agent's task, such as its report and its state on the roster."""
TASK_LINE_LENGTH = 200
"""Maximum characters of an agent's task on the roster (list of the session's agents); longer tasks are cut."""
NO_PROCESS = "it has no process now; a message starts it again"


@attrs.frozen(kw_only=True)
class RestartPolicy:
    """Rule for restarts after crashes of an agent's process: at most `limit` restarts for one task."""

    limit: int = 2
    first_wait: float = 0.5
    """Seconds before the first restart; doubled before each further restart."""

    def wait_after(self, crashes: int) -> float | None:
        """Return the seconds before the restart after this number of crashes; None if there is no further restart."""
        return None if crashes > self.limit else self.first_wait * 2 ** (crashes - 1)


NO_RESTARTS = RestartPolicy(limit=0)


@attrs.define(eq=False)
class NotRunning(AgentError):
    """Error: no agent with the requested name is running or waiting for messages in the session."""

    name: str
    running: tuple[str, ...]
    """Names of the agents that are running or waiting, for the suggestion in the text."""

    def __str__(self) -> str:
        return f"{self.name!r} is not running; {did_you_mean(self.name, self.running)}"


@attrs.define(eq=False, kw_only=True)
class AgentRun:
    """One agent over all starts of its process, and over the time in which it has no process and waits for messages."""

    spec: AgentSpec
    """Start parameters for the first task; each start has its own version, see `AgentProcess.spec`."""
    budget: Decimal | None = None
    """Maximum dollars that the agent and its descendants may spend; None if they have no separate limit."""
    isolation: Isolation | None = None
    """Kind of separate workspace, for example a git worktree; None if the agent works in its parent's directory."""
    is_in_process: bool = False
    """True if the agent is a task in the process of its parent."""
    is_kept: bool = False
    """True if the agent is started again when a message arrives after its task is done."""
    is_resumed: bool = False
    """True if this root resumes the agent from the record (`UnfinishedAgent`) of an earlier root process."""
    team: tuple[SpawnRequest, ...] = ()
    """Requests for agents that the root must start as children of this agent once it is ready."""
    request: SpawnRequest | None = None
    """Request of the parent for this agent; None for the lead (the first agent), which the user starts."""
    outcome: AgentOutcome | None = None
    """How the task's latest process ended, or the recorded end of a resumed idle agent; None before the first end."""
    workspace: AgentWorkspace = attrs.field(
        default=attrs.Factory(lambda run: run.spec.workspace, takes_self=True), init=False
    )
    """Working directory and worktree of the latest start."""
    report: MessageId = attrs.field(default=attrs.Factory(lambda run: run.spec.report, takes_self=True), init=False)
    """Id of the report about the current task, the same after restarts, so that the parent gets one report."""
    process: AgentProcess | None = attrs.field(default=None, init=False)
    """Latest process for the current task; None before the task's first process."""
    children: Spawner | None = attrs.field(default=None, init=False)
    """Starts and stops subagents for this agent during the current task; None before the first task."""
    cancel_scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Cancelling this scope stops the agent and its children."""
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the agent has ended and is removed from `AgentRuns`."""
    stopped_by: str | None = attrs.field(default=None, init=False)
    """First requester of a stop: the name of an agent or "the user"; None if no stop was requested."""
    crash_count: int = attrs.field(default=0, init=False)
    """Number of crashes of the agent's process during the current task."""
    pending_spawns: int = attrs.field(default=0, init=False)
    """Number of operations in progress that start children without the agent's request: for its team or the user."""
    _restarts: RestartPolicy = attrs.field(default=NO_RESTARTS, init=False)
    _is_task_recorded: bool = attrs.field(default=False, init=False)
    """True once the agent's transcript contains the task, so that a restart does not send the task again."""

    @property
    def name(self) -> str:
        """Name of the agent."""
        return self.spec.name

    @property
    def member_origin(self) -> MemberOrigin | None:
        """Agent type, parent and short task for the list of agents; None for an offline job, which changes no entry."""
        spec = self.spec
        if spec.job is not None:
            return None
        task = " ".join(spec.task.split())
        line = task if len(task) <= TASK_LINE_LENGTH else f"{task[:TASK_LINE_LENGTH]}..."
        return MemberOrigin(kind=spec.definition if spec.fork is None else FORK, parent=spec.parent, task=line)

    @property
    def task(self) -> str:
        """Task to pass to the next start; empty once it is in the transcript."""
        return "" if self._is_task_recorded else self.spec.task

    @property
    def is_done(self) -> bool:
        """True if the latest process has ended with success."""
        return self.outcome is not None and self.outcome.end == "done"

    @property
    def is_idle(self) -> bool:
        """True if the agent has no work and waits for messages, with or without a process."""
        if self.process is None:
            return self.outcome is not None
        return self.process.state in ("idle", "done")

    @property
    def is_ready(self) -> bool:
        """True if the agent has a running process, so that subagents can be started for it."""
        return self.process is not None and self.process.is_ready

    @property
    def shutdown_reason(self) -> str:
        """Reason to give the agent in a shutdown request."""
        return f"{self.stopped_by} stopped it" if self.stopped_by else "the session or its parent has ended"

    @contextlib.contextmanager
    def spawning(self, notify: Callable[[], None]) -> Iterator[None]:
        """Count the start of children in this block in `pending_spawns`; call *notify* at the end of the block."""
        self.pending_spawns += 1
        try:
            yield
        finally:
            self.pending_spawns -= 1
            notify()

    def begin_task(self, restarts: RestartPolicy, children: Spawner) -> None:
        """Reset the state for a task: the first one, or the work for a message that arrived after the last task."""
        if self.outcome is not None:
            self.report = new_message_id()
            # Without a process, the outcome is of an earlier root. A run that failed before its first call is repeated.
            self._is_task_recorded = self._is_task_recorded or self.process is None
        self.outcome = self.process = None
        self.crash_count = 0
        self._restarts, self.children = restarts, children

    async def open_workspace(self, session: SessionDirectory) -> None:
        """Open the agent's git worktree, new or from an earlier start, if it has its own. Raises `StartFailed`."""
        if self.isolation is None:
            return
        origin = self.spec.workspace.directory or session.project
        try:
            worktree = await open_worktree(session, self.name, origin)
        except WorktreeFailed as exc:
            raise StartFailed(str(exc)) from exc
        self.workspace = AgentWorkspace(directory=worktree.directory, worktree=worktree)

    def begin_process(self, process: AgentProcess) -> None:
        """Record *process* as the latest process of the agent, and publish its state "starting"."""
        self.process = process
        again = self.outcome and f"again, {self.crash_count} of {self._restarts.limit}: {self.outcome.summary}"
        process.set_state("starting", again or "")

    def end_process(self, process: AgentProcess) -> float | None:
        """Record how the reaped *process* ended. Return the seconds before a restart; None if it is not restarted."""
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
        """Add the sentence *why* to the explanation in the outcome, if there is an outcome."""
        if self.outcome is not None:
            self.outcome = attrs.evolve(self.outcome, why=f"{why} {self.outcome.why}".rstrip())

    async def stop(self, by: str) -> None:
        """Stop the agent and its children, and wait for their end. The report to its parent names the first *by*."""
        self.stopped_by = self.stopped_by or by
        self.cancel_scope.cancel()
        await self.ended.wait()

    def request_shutdown(self, request: Envelope) -> None:
        """Send the shutdown *request* to the agent. Raises `SpawnRefused` if the addressed process is gone."""
        process = self.process
        if process is None or process.connection is None or process.state in PROCESS_ENDS:
            raise SpawnRefused(f"agent {self.name} has no process to shut down; do not send it messages, they start it")
        requested, current = request.recipient.incarnation, process.spec.incarnation.number
        if current != requested:
            raise SpawnRefused(
                f"the shutdown request is for start {requested} of agent {self.name}, but start {current} is running; "
                "send a new request"
            )
        try:
            process.connection.deliver(request)
        except ControlLost as exc:
            raise SpawnRefused(f"agent {self.name} did not receive the shutdown request: {exc}; try again") from exc

    def notify(self, message: ExpectReport | StopWaiting) -> None:
        """Tell the agent of a report to expect, or of a child not to wait for. No-op if it is not connected."""
        if (connection := self._connection) is not None:
            # An agent that has ended does not wait; a later incarnation gets the expected reports with its spec.
            with contextlib.suppress(ControlLost):
                connection.send(message)

    async def compact(self, pivot: Pivot | None) -> CompactionDone | NotCompacted:
        """Ask the agent to replace part *pivot* of its conversation by a summary; `NotCompacted` if not running."""
        if (connection := self._connection) is not None:
            with contextlib.suppress(ControlLost):
                return await connection.compact(pivot)
        return NotCompacted(reason=NO_PROCESS)

    @property
    def _connection(self) -> AgentConnection | None:
        return None if self.process is None else self.process.connection

    @property
    def recovery_record(self) -> UnfinishedAgent | None:
        """Record from which the next root can resume the agent; None for the first agent, which the user starts."""
        if self.request is None or self.spec.parent is None:
            return None
        return UnfinishedAgent(name=self.name, parent=self.spec.parent, request=self.request, report=self.report)

    async def finish_task(self, services: RootServices, unfinished: UnfinishedAgents, *, keeps_worktree: bool) -> None:
        """Publish how the task ended, report a failure to the parent, and update or delete the agent's recovery record.

        A worktree without unsaved work is removed, unless *keeps_worktree*. The steps are shielded from cancellation;
        each has a deadline.
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
        """Publish the end of *process*. Report a failure, with worktree text *left*, to the parent; free its tasks."""
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
    """Return the runs of all agents below agent *name*: its children, their children, and so on."""
    own = [run for run in runs.values() if run.spec.parent == name]
    return own + [below for child in own for below in descendants(runs, child.name)]


async def _release_worktree(worktree: Worktree, *, keeps_worktree: bool) -> str:
    """Remove the *worktree* of an ended agent unless it is to be kept or has unsaved work; return a sentence about it.

    Shielded from cancellation, with a deadline. `coterie doctor` removes a worktree that could not be removed here.
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
    """Runs of agents that have not ended, by name, including agents that wait for a message without a process."""

    def find(self, name: str) -> AgentRun:
        """Return the run of agent *name*. Raises `NotRunning` if there is none."""
        if name not in self:
            raise NotRunning(name, tuple(self))
        return self[name]

    def move_to_background(self, name: str, why: str = "") -> None:
        """Make the parent of *name* stop waiting for it; the report will arrive as mail. Raises `NotRunning`."""
        parent = self.get(self.find(name).spec.parent or "")
        if parent is not None:
            parent.notify(StopWaiting(name=name, why=why))

    def wake_lead(self, name: str) -> None:
        """End the wait of the lead (the first agent) for *name* or an ancestor of *name*, so that it reads its mail."""
        while (run := self.get(name)) is not None and run.spec.parent is not None:
            if run.spec.parent == MAIN:
                self.move_to_background(name, "a plan waits for your answer")
            name = run.spec.parent
