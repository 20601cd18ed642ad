"""A running session of the Python API: its events, its requests to the root, and its result, read after its end."""

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
    """Result of a session: the end of the lead's run, its costs, and the last states of all agents."""

    session: str
    """Session id, with which the session can be resumed."""
    reason: str
    """End reason: completed, budget, max_turns, cancelled, model_error ...; docs/python.md lists all."""
    text: str
    """Final text of the lead."""
    turns: int
    """Turns of the lead in this run."""
    usage: Usage
    """Tokens of the lead, in this run."""
    cost: Decimal
    """Dollars of the lead in this run, exact."""
    session_cost: Decimal
    """Dollars of all agents, in this run and earlier ones."""
    seconds: float
    error: str | None
    """Error text of the model API or of the gateway; None without an error."""
    is_unreachable: bool
    """True if the model API could not be reached."""
    transcript: Path
    """Transcript file of the lead."""
    agents: tuple[AgentSummary, ...]
    """All agents including the lead, with their last states."""

    @property
    def is_done(self) -> bool:
        """True if the lead completed its task."""
        return self.reason == "completed"

    def state(self, name: str) -> str:
        """Return the last state of agent *name*: done, failed, killed, idle or interrupted. Raises `KeyError`."""
        return {agent.name: agent.state for agent in self.agents}[name]


def read_result(session: SessionDirectory, past: Counter[str]) -> SessionResult | None:
    """Read the result of the run of *session* after the *past* events; None if the lead has not finished.

    Blocks on the disk; raises `OSError`.
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
    """State of a session, running or ended, for the tasks that wait for it."""

    outcome: FinalMessage | None = None
    """Last message of the root; None before it, and if the root was killed or detached before."""
    is_detached: bool = False
    """True if the block of a detached session has ended; the state of the session is then unknown."""
    _is_over: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scopes: set[trio.CancelScope] = attrs.field(factory=set, init=False)

    @property
    def is_over(self) -> bool:
        """True if the session has ended or its root is unreachable."""
        return self._is_over.is_set()

    def end(self, outcome: FinalMessage | None) -> None:
        """Mark the session as ended with *outcome*; only the first call counts."""
        if not self.is_over:
            self.outcome = outcome
            self._is_over.set()
        for scope in self._scopes:
            scope.cancel()

    async def wait_ended(self) -> None:
        """Wait for the end of the session."""
        await self._is_over.wait()

    @contextmanager
    def until_ended(self) -> Iterator[None]:
        """Cancel the block when the session ends."""
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
    """Async iterator over events; it ends after the session has ended and all its events were returned."""

    _follower: EventFollower
    _liveness: SessionLiveness
    _past: Counter[str]
    """Number of events of each agent that are still to be skipped."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionEvent:
        """Return the next event. Cancellation loses no event. Raises `OSError`."""
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
    """Count the events of each agent in the session of *directory*. Blocks on the disk; raises `OSError`."""
    return Counter(observed.agent for observed in read_session(directory))


@asynccontextmanager
async def open_stream(directory: Path, liveness: SessionLiveness, past: Counter[str]) -> AsyncIterator[EventStream]:
    """Open a stream of the events of the session in *directory*, without the first *past* events of each agent."""
    async with open_follower(directory) as follower:
        yield EventStream(follower, liveness, past.copy())


@attrs.define(eq=False)
class LiveSession:
    """An open session. Made by `coterie.open_session`.

    Its methods may be called by any task of the program. They raise `SessionOver` if the session has ended, and
    `RequestRefused` if a request is refused.
    """

    _session: SessionDirectory
    _liveness: SessionLiveness
    _client: RootClient
    _past: Counter[str]
    """Number of events of each agent before the session was opened."""

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
        """Directory of the session's files."""
        return self._session.directory

    def events(self) -> AbstractAsyncContextManager[EventStream]:
        """Return a context manager of an async iterator over the events since the session was opened.

        The iterator ends with the session. Each call returns an independent iterator over all events.
        """
        return open_stream(self._session.directory, self._liveness, self._past)

    async def wait(self) -> SessionResult:
        """Wait for the end of the session and return its result, with the end reason in `SessionResult.reason`.

        Raises `SessionFailed` if the session ended without a result.
        """
        await self._liveness.wait_ended()
        outcome = self._liveness.outcome
        if isinstance(outcome, RunFailed):
            raise SessionFailed(self.id, outcome.reason)
        result = await trio.to_thread.run_sync(read_result, self._session, self._past)
        is_done = isinstance(outcome, SessionEnded) and outcome.is_done
        if result is None or not (is_done or result.is_done):
            raise SessionFailed(self.id, f"it ended without a result: {self._end_reason}")
        return result

    async def send(self, to: str, text: str, *, summary: str | None = None) -> Receipt:
        """Send a message of the user to the agent *to*; once this returns, the message is stored for one delivery.

        *to* is the name of an agent or the address of another session.
        """
        if to == "*":
            raise RequestRefused(self.id, "send() has one recipient; send to each agent by name", "send", to)
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
                raise AssertionError(f"unexpected answer {answer}")

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
        """Start an agent for the lead, and return when it is running.

        The agent is a child of the lead, as if the lead had started it: it ends with the lead, which waits for its
        report as a message. With *stays* it is a teammate and waits for messages after *prompt* is done.
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
        """Return the open approvals, the oldest first."""
        stored = await trio.to_thread.run_sync(read_approvals, self._session)
        return tuple(each.approval for each in stored if each.approval is not None and each.approval.is_open)

    async def decide(self, approval: str, *, approve: bool, feedback: str = "") -> None:
        """Decide the approval with id *approval* as the user; the agent receives *feedback*."""
        if not approve and not feedback.strip():
            reason = "a rejection needs feedback: what is wrong, and what would be right"
            raise RequestRefused(self.id, reason, "decide", approval)
        await self._ask("decide", approval, DecideApproval(id=approval, approve=approve, feedback=feedback))

    async def stop(self, name: str) -> None:
        """Stop the agent *name* and its descendants; return when all have ended."""
        await self._ask("stop", name, StopAgent(name=name))

    def interrupt(self) -> None:
        """Cancel the lead's current turn; its run ends with reason `cancelled`. No-op after the end."""
        with suppress(ControlLost):
            self._client.send(InterruptTurn())

    async def _ask(self, asked: RequestName, subject: str, request: ControlRequest) -> ControlAnswer:
        if len(msgspec.json.encode(request)) > FRAME_LIMIT:
            reason = f"the request is too long; the limit is {FRAME_LIMIT:,} bytes"
            raise RequestRefused(self.id, reason, asked, subject)
        if (root := find_root(self._session)) is None:
            raise SessionOver(self.id, f"it has ended: {self._end_reason}")
        try:
            return await send_request(root, request)
        except ConfigInvalid as exc:
            if exc.source == "session":  # the connection failed, not the request
                raise SessionOver(self.id, exc.reason) from exc
            raise RequestRefused(self.id, exc.reason, asked, subject) from exc

    @property
    def _end_reason(self) -> str:
        """Reason of the end, as far as the root has reported one."""
        if self._liveness.is_detached:
            return "this program has detached from it; open it again when it has ended"
        outcome = self._liveness.outcome
        return (outcome.reason if outcome is not None else "its process was killed.") or "its task is done."


def _checked_text(name: str, text: str) -> str:
    """Return *text* if it is not empty and valid Unicode. Raises `ConfigInvalid`."""
    if not text.strip():
        raise ConfigInvalid(name, "it is empty; pass a text")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise ConfigInvalid(name, f"it cannot be encoded as UTF-8: {exc.reason}") from exc
    return text
