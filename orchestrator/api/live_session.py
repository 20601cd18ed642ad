"""Live session of the Python API: reads events and the result, and sends requests to the root (supervisor process)."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Self

import attrs
import msgspec
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.events.agent_events import Finished, RunStarted
from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.loop.model.usage import Usage
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.root_link.messages import RunFailed
from coterie.agents.root_link.spawn_request import GENERAL, Spawned, SpawnRequest
from coterie.errors import ConfigInvalid
from coterie.framing import FRAME_LIMIT
from coterie.mailbox.contract import Receipt
from coterie.orchestrator.api.errors import RequestName, RequestRefused, SessionFailed, SessionOver
from coterie.orchestrator.approvals.store import Approval, read_approvals
from coterie.orchestrator.control.client import send_request
from coterie.orchestrator.control.launch_client import FinalMessage, RootClient
from coterie.orchestrator.control.requests import (
    AgentStarted,
    ControlAnswer,
    ControlRequest,
    DecideApproval,
    DeliveryStatuses,
    InterruptTurn,
    NotStored,
    SendMail,
    SessionEnded,
    SpawnAgent,
    StopAgent,
)
from coterie.orchestrator.events.follower import EventFollower, open_follower
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.session.overview import AgentSummary, read_overview
from coterie.orchestrator.session.root_lock import find_root
from coterie.session_directory import MAIN, TRANSCRIPT, SessionDirectory


@attrs.frozen(kw_only=True)
class SessionResult:
    """Result of a finished session: end reason and text of the lead (first agent), costs, and states of all agents."""

    session: str
    """Session id, with which `open_session(session=...)` resumes the session."""
    reason: str
    """Reason why the lead ended: completed, budget, max_turns, cancelled, model_error ...; docs/python.md lists all."""
    text: str
    """Final text of the lead, the first agent of the session."""
    turns: int
    """Number of turns (model calls) of the lead since this program started or resumed the session."""
    usage: Usage
    """Tokens that the lead used since this program started or resumed the session."""
    cost: Decimal
    """Exact cost in dollars of the lead's model calls since this program started or resumed the session."""
    session_cost: Decimal
    """Cost in dollars of all agents since the session was created, including runs before it was resumed."""
    seconds: float
    error: str | None
    """Text of the error that ended the lead's run, such as one of the model API; None if no error ended it."""
    is_unreachable: bool
    """True if the lead's run ended because the model API could not be reached."""
    transcript: Path
    """Transcript file, which stores the conversation of the lead (first agent)."""
    agents: tuple[AgentSummary, ...]
    """Summaries of all agents of the session including the lead, each with the last state of the agent."""

    @property
    def is_done(self) -> bool:
        """True if the lead (first agent) completed its task, so that `reason` is `completed`."""
        return self.reason == "completed"

    def state(self, name: str) -> str:
        """Return the last state of agent *name*, such as done, failed, killed or interrupted; `KeyError` if unknown."""
        return {agent.name: agent.state for agent in self.agents}[name]


def read_result(session: SessionDirectory, past: Counter[str]) -> SessionResult | None:
    """Read the result of the current run of *session* from its files; None if the lead (first agent) has not finished.

    *past* is the number of events of earlier runs, by agent name. Blocks on the disk; raises `OSError`.
    """
    end: Finished | None = None
    began = ended = 0.0
    own = (observed for observed in read_session(session.directory, MAIN) if observed.agent == MAIN)
    for observed in islice(own, past[MAIN], None):
        match observed.event:
            case RunStarted():
                began = began or observed.at
            case Finished() as end:
                ended = observed.at
    if end is None:
        return None
    overview = read_overview(session)
    return SessionResult(
        session=session.id,
        reason=end.reason,
        text=end.result,
        turns=end.turns,
        usage=Usage(**end.usage),
        cost=Decimal(end.cost_usd),
        session_cost=overview.cost,
        seconds=ended - began,
        error=end.error,
        is_unreachable=end.is_unreachable,
        transcript=session.directory / "agents" / MAIN / TRANSCRIPT,
        agents=overview.agents,
    )


@attrs.define(eq=False)
class SessionLiveness:
    """End of a session as this program sees it: wakes the tasks that wait for it, stores the root's last message."""

    outcome: FinalMessage | None = None
    """Last message of the root (supervisor process); None if it was not received, such as after a kill of the root."""
    is_detached: bool = False
    """True if the `open_session` block has ended but the session continues; its further state is then unknown."""
    _is_over: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scopes: set[trio.CancelScope] = attrs.field(factory=set, init=False)

    @property
    def is_over(self) -> bool:
        """True if `end` was called: the session ended, its root is unreachable, or the `open_session` block ended."""
        return self._is_over.is_set()

    def end(self, outcome: FinalMessage | None) -> None:
        """Wake or cancel waiting tasks and store *outcome*, the root's last message; only the first call stores it."""
        if not self.is_over:
            self.outcome = outcome
            self._is_over.set()
        for scope in self._scopes:
            scope.cancel()

    async def wait_ended(self) -> None:
        """Wait until the session has ended, the root is unreachable, or the `open_session` block has ended."""
        await self._is_over.wait()

    @contextmanager
    def until_ended(self) -> Iterator[None]:
        """Return a context manager that cancels its block when the session ends, or immediately if it has ended."""
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.is_over:
                scope.cancel()
            try:
                yield
            finally:
                self._scopes.remove(scope)


@attrs.define(eq=False)
class EventStream:
    """Async iterator over the events of a session; it stops once the session has ended and no event is left."""

    _follower: EventFollower
    _liveness: SessionLiveness
    _past: Counter[str]
    """Number of events that are still to be skipped, by agent name."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionEvent:
        """Wait for the next event and return it. Cancellation loses no event. Raises `OSError`."""
        while True:
            observed = None
            with self._liveness.until_ended():
                observed = await anext(self._follower)
            if observed is None and (observed := self._follower.take_nowait()) is None:
                raise StopAsyncIteration
            if not self._past[observed.agent]:
                return observed
            self._past[observed.agent] -= 1


def count_existing(directory: Path) -> Counter[str]:
    """Count the events in the session *directory*, by agent name. Blocks on the disk; raises `OSError`."""
    return Counter(observed.agent for observed in read_session(directory))


@asynccontextmanager
async def open_stream(directory: Path, liveness: SessionLiveness, past: Counter[str]) -> AsyncIterator[EventStream]:
    """Yield a stream of a session's events; the first `past[name]` events of each agent *name* are skipped."""
    async with open_follower(directory) as follower:
        yield EventStream(follower, liveness, past.copy())


@attrs.define(eq=False)
class LiveSession:
    """Handle of a session that `coterie.open_session` started: sends requests to it and reads its events and result.

    Any trio task may call the methods. Methods that send a request raise `SessionOver` if the session has ended, and
    `RequestRefused` if the request is refused.
    """

    _session: SessionDirectory
    _liveness: SessionLiveness
    _client: RootClient
    _past: Counter[str]
    """Number of events that each agent wrote before this program opened the session, by agent name."""

    @property
    def id(self) -> str:
        """Session id, for `open_session(session=...)` and commands such as `coterie attach`."""
        return self._session.id

    @property
    def project(self) -> Path:
        """Directory in which the agents of the session work."""
        return self._session.project

    @property
    def directory(self) -> Path:
        """Directory in which Coterie stores the files of the session, such as transcripts and event logs."""
        return self._session.directory

    def events(self) -> AbstractAsyncContextManager[EventStream]:
        """Return a context manager that yields an async iterator over all events since this program opened the session.

        The iterator stops when the session has ended. Each call gives an independent iterator from the first event on.
        """
        return open_stream(self._session.directory, self._liveness, self._past)

    async def wait(self) -> SessionResult:
        """Wait for the end of the session and return its result; `SessionResult.reason` tells why the lead ended.

        Raises `SessionFailed` if the session ended before its lead (first agent) had a result.
        """
        await self._liveness.wait_ended()
        outcome = self._liveness.outcome
        if isinstance(outcome, RunFailed):
            raise SessionFailed(self.id, outcome.reason)
        result = await trio.to_thread.run_sync(read_result, self._session, self._past)
        is_done = isinstance(outcome, SessionEnded) and outcome.is_done
        if result is None or not (is_done or result.is_done):
            reason = f"the session ended without a result; resume it with open_session(session=...): {self._end_reason}"
            raise SessionFailed(self.id, reason)
        return result

    async def send(self, to: str, text: str, *, summary: str | None = None) -> Receipt:
        """Send *text* as a message of the user to *to*, the name of an agent or the address of another session.

        When this method returns, the message is stored on disk until it is delivered.
        """
        if to == "*":
            raise RequestRefused(self.id, "'*' is not a recipient; send the message to each agent by name", "send", to)
        request = SendMail(
            to=to,
            body=_checked_text("text", text),
            summary=None if summary is None else _checked_text("summary", summary),
        )
        match await self._ask("send", to, request):
            case DeliveryStatuses(fates=(fate,)) if fate.receipt is not None:
                return fate.receipt
            case DeliveryStatuses(fates=(fate,)):
                raise RequestRefused(self.id, fate.refusal or "", "send", to)
            case NotStored(reason=reason):
                raise RequestRefused(self.id, reason, "send", to)
            case answer:
                raise AssertionError(f"the root (supervisor process) gave an unexpected answer to a message: {answer}")

    async def spawn(
        self,
        prompt: str,
        *,
        kind: str = GENERAL,
        name: str | None = None,
        model: str | None = None,
        stays: bool = False,
        worktree: bool = False,
        plan: PlanPolicy | None = None,
        budget_usd: Decimal | None = None,
    ) -> Spawned:
        """Start an agent of type *kind* with the task *prompt*, and return when the agent is running.

        The agent is a child of the lead (first agent), as if the lead had started it. The lead waits for the agent's
        report, and the agent ends with the lead. With *stays* the agent waits for messages after its task.
        """
        request = SpawnRequest(
            task=prompt.strip() if stays and not prompt.strip() else _checked_text("prompt", prompt),
            definition=kind,
            name=name,
            model=model,
            stays=stays,
            isolation="worktree" if worktree else None,
            plan=plan,
            budget_usd=budget_usd,
        )
        answer = await self._ask("spawn", name or kind, SpawnAgent(wanted=request))
        assert isinstance(answer, AgentStarted), answer
        return answer.spawned

    async def approvals(self) -> tuple[Approval, ...]:
        """Return the undecided approvals (agents' requests for permission or for approval of a plan), oldest first."""
        stored = await trio.to_thread.run_sync(read_approvals, self._session)
        return tuple(each.approval for each in stored if each.approval is not None and each.approval.is_open)

    async def decide(self, approval: str, *, approve: bool, feedback: str = "") -> None:
        """Approve or reject, as the user, the request with id *approval*; a rejection needs *feedback* to the agent."""
        if not approve and not feedback.strip():
            reason = "a rejection needs feedback; pass feedback= and say what the agent should do instead"
            raise RequestRefused(self.id, reason, "decide", approval)
        await self._ask("decide", approval, DecideApproval(id=approval, approve=approve, feedback=feedback))

    async def stop(self, name: str) -> None:
        """Stop the agent *name* and its descendants (agents that it or they started); return when all have ended."""
        await self._ask("stop", name, StopAgent(name=name))

    def interrupt(self) -> None:
        """Cancel the lead's current turn, so that its run ends with reason `cancelled`. No-op if the session ended."""
        with suppress(ControlLost):
            self._client.send(InterruptTurn())

    async def _ask(self, asked: RequestName, subject: str, request: ControlRequest) -> ControlAnswer:
        if len(msgspec.json.encode(request)) > FRAME_LIMIT:
            reason = f"the request is too long; the limit is {FRAME_LIMIT:,} bytes, so pass a shorter text"
            raise RequestRefused(self.id, reason, asked, subject)
        if (root := find_root(self._session)) is None:
            raise SessionOver(self.id, f"the session has ended; resume it with session={self.id!r}: {self._end_reason}")
        try:
            return await send_request(root, request)
        except ConfigInvalid as exc:
            if exc.source == "session":  # the connection failed, not the request
                raise SessionOver(self.id, exc.reason) from exc
            raise RequestRefused(self.id, exc.reason, asked, subject) from exc

    @property
    def _end_reason(self) -> str:
        """Reason why the session ended, for error lines, as far as the root (supervisor process) reported it."""
        if self._liveness.is_detached:
            return "this program has detached from the session and received no reason for its end."
        outcome = self._liveness.outcome
        return (outcome.reason if outcome is not None else "its process was killed.") or "its task is done."


def _checked_text(name: str, text: str) -> str:
    """Return *text*; raise `ConfigInvalid` for the argument *name* if *text* is blank or cannot be encoded as UTF-8."""
    if not text.strip():
        raise ConfigInvalid(name, "the argument is blank; pass a text with other characters than spaces")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise ConfigInvalid(name, f"the argument cannot be encoded as UTF-8: {exc.reason}; remove them") from exc
    return text
