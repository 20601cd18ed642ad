"""A running session of the Python API: its events, its requests to the root, its result."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Self

import attrs
import msgspec
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.root_link.messages import RunFailed
from coterie.agents.root_link.spawn_request import GENERAL, Spawned, SpawnRequest
from coterie.errors import ConfigInvalid
from coterie.framing import FRAME_LIMIT
from coterie.mailbox.contract import Receipt
from coterie.orchestrator.api.errors import RequestName, RequestRefused, SessionFailed, SessionOver
from coterie.orchestrator.api.session_result import SessionResult, read_result
from coterie.orchestrator.approvals.store import Approval, read_approvals
from coterie.orchestrator.control.client import send_request
from coterie.orchestrator.control.launch_client import FinalMessage, RootClient
from coterie.orchestrator.control.launch_protocol import InterruptTurn, SessionEnded
from coterie.orchestrator.control.requests import (
    AgentStarted,
    ControlAnswer,
    ControlRequest,
    DecideApproval,
    DeliveryStatuses,
    NotStored,
    SendMail,
    SpawnAgent,
    StopAgent,
)
from coterie.orchestrator.events.follower import EventFollower, open_follower
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.session.root_lock import find_root
from coterie.session_directory import SessionDirectory


@attrs.define(eq=False)
class SessionLiveness:
    """The time in which a session runs, for those who wait for what happens in it."""

    outcome: FinalMessage | None = None
    """The last word of its root; None before it, and if it was killed or left before."""
    is_detached: bool = False
    """Whether the block of a session that goes on alone has ended, so that nobody knows."""
    _is_over: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scopes: set[trio.CancelScope] = attrs.field(factory=set, init=False)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more, or nobody hears of it any more."""
        return self._is_over.is_set()

    def end(self, outcome: FinalMessage | None) -> None:
        """It is over; only what is said first counts."""
        if not self.is_over:
            self.outcome = outcome
            self._is_over.set()
        for scope in self._scopes:
            scope.cancel()

    async def wait_ended(self) -> None:
        """Return when it is over."""
        await self._is_over.wait()

    @contextmanager
    def until_ended(self) -> Iterator[None]:
        """Leave the block when it is over, at the latest."""
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
    """An async iterator that owns no task. It ends when the session is over, and all that happened was given."""

    _follower: EventFollower
    _liveness: SessionLiveness
    _past: Counter[str]
    """How many events of each agent are still to be passed over."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionEvent:
        """The next event. Cancellation loses none. Raises `OSError`."""
        while (observed := await self._next()) is not None:
            if not self._past[observed.agent]:
                return observed
            self._past[observed.agent] -= 1
        raise StopAsyncIteration

    async def _next(self) -> SessionEvent | None:
        with self._liveness.until_ended():
            return await anext(self._follower)
        return self._follower.take_nowait()


def count_existing(directory: Path) -> Counter[str]:
    """How many events of each agent the session of *directory* has. Blocks on the disk; raises `OSError`."""
    return Counter(observed.agent for observed in read_session(directory))


@asynccontextmanager
async def open_stream(directory: Path, life: SessionLiveness, past: Counter[str]) -> AsyncIterator[EventStream]:
    """The events of the session of *directory* that stand behind the *past* ones."""
    async with open_follower(directory) as follower:
        yield EventStream(follower, life, past.copy())


@attrs.define(eq=False)
class LiveSession:
    """A session between the beginning and the end of its block. Made by `coterie.open_session`.

    Its methods may be called by any task of the program. They raise `SessionOver` when the session does not run any
    more, and `RequestRefused` for what cannot be done.
    """

    _session: SessionDirectory
    _liveness: SessionLiveness
    _host: RootClient
    _past: Counter[str]
    """How many events of each agent there were before it was opened."""

    @property
    def id(self) -> str:
        """By which it can be opened again, and `coterie attach` and other commands find it."""
        return self._session.id

    @property
    def project(self) -> Path:
        """The directory that its agents work in."""
        return self._session.project

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self._session.directory

    def events(self) -> AbstractAsyncContextManager[EventStream]:
        """What happens, from when the session was opened, as an async iterator in a block.

        It ends when the session is over. Each call gives another reader, and all of them everything.
        """
        return open_stream(self._session.directory, self._liveness, self._past)

    async def wait(self) -> SessionResult:
        """What came of the task, when the session is over; how it ended is in `Result.reason`.

        Raises `SessionFailed` if its lead could not say so.
        """
        await self._liveness.wait_ended()
        outcome = self._liveness.outcome
        if isinstance(outcome, RunFailed):
            raise SessionFailed(self.id, outcome.reason)
        result = await trio.to_thread.run_sync(read_result, self._session, self._past)
        is_done = isinstance(outcome, SessionEnded) and outcome.is_done
        if result is None or not (is_done or result.is_done):
            raise SessionFailed(self.id, f"it has ended before its task: {self._end_reason}")
        return result

    async def send(self, to: str, text: str, *, summary: str | None = None) -> Receipt:
        """Send a message of the user to the agent *to*; once this returns, it is stored and reaches its model once.

        *to* is a name, or an address of another session.
        """
        if to == "*":
            raise RequestRefused(self.id, "a receipt is for one recipient; send it to each by name", "send", to)
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
                raise AssertionError(f"{answer} answers nothing that was asked")

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
        """Start another agent for the lead, and return when it is at work.

        It is the lead's as if the lead had started it: its report goes to the lead as a message, which the lead waits
        for, and it ends with the lead. With *stays* it is a teammate, who waits for messages when *prompt* is done.
        """
        wanted = SpawnRequest(
            task=prompt.strip() if stays and not prompt.strip() else _checked_text("prompt", prompt),
            definition=kind,
            name=name,
            model=model,
            stays=stays,
            isolation="worktree" if worktree else None,
            plan=plan,
            budget_usd=budget_usd,
        )
        answer = await self._ask("spawn", name or kind, SpawnAgent(wanted=wanted))
        assert isinstance(answer, AgentStarted), answer
        return answer.spawned

    async def approvals(self) -> tuple[Approval, ...]:
        """Plans and calls that wait for somebody's yes now, the oldest first, with all they would do."""
        kept = await trio.to_thread.run_sync(read_approvals, self._session)
        return tuple(each.approval for each in kept if each.approval is not None and each.approval.is_open)

    async def decide(self, approval: str, *, approve: bool, feedback: str = "") -> None:
        """Answer the approval of that id for the user; *feedback* is what the agent is told besides."""
        if not approve and not feedback.strip():
            raise RequestRefused(
                self.id, "a no needs feedback: what is wrong, and what would be right", "decide", approval
            )
        await self._ask("decide", approval, DecideApproval(id=approval, approve=approve, feedback=feedback))

    async def stop(self, name: str) -> None:
        """Stop the agent *name* and those it has started; returns when none of them is left."""
        await self._ask("stop", name, StopAgent(name=name))

    def interrupt(self) -> None:
        """End the turn that the lead is at: its run ends as `cancelled`. Nothing happens if it has ended."""
        with suppress(ControlLost):
            self._host.send(InterruptTurn())

    async def _ask(self, asked: RequestName, subject: str, request: ControlRequest) -> ControlAnswer:
        if len(msgspec.json.encode(request)) > FRAME_LIMIT:
            raise RequestRefused(self.id, f"it is too long: at most {FRAME_LIMIT:,} bytes can be asked", asked, subject)
        if (root := find_root(self._session)) is None:
            raise SessionOver(self.id, f"it does not run any more: {self._end_reason}")
        try:
            return await send_request(root, request)
        except ConfigInvalid as exc:
            if exc.source == "session":  # and not what was asked for
                raise SessionOver(self.id, exc.reason) from exc
            raise RequestRefused(self.id, exc.reason, asked, subject) from exc

    @property
    def _end_reason(self) -> str:
        """How it has ended, as far as its root has said so."""
        if self._liveness.is_detached:
            return "it went on alone; open it again when it has ended"
        outcome = self._liveness.outcome
        return (outcome.reason if outcome is not None else "its process was killed.") or "its task is done."


def _checked_text(name: str, text: str) -> str:
    """*text*, if somebody can be told it. Raises `ConfigInvalid`."""
    if not text.strip():
        raise ConfigInvalid(name, "it is empty; say what the agent is to know")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise ConfigInvalid(name, f"it cannot be written as UTF-8: {exc.reason}") from exc
    return text
