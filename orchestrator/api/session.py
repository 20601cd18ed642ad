"""A session that a program has opened: what happens in it, what it is told, and what comes of it."""

from collections import Counter
from contextlib import AbstractAsyncContextManager, suppress
from decimal import Decimal
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.approvals.policy import PlanPolicy
from coterie.agents.control.words import Unable
from coterie.agents.errors import ConfigInvalid, ControlLost
from coterie.agents.spawning import GENERAL, Spawned, SpawnRequest
from coterie.mailbox.bridge.frames import FRAME_LIMIT
from coterie.mailbox.contract import Receipt
from coterie.orchestrator.api.errors import Asked, RequestRefused, SessionFailed, SessionOver
from coterie.orchestrator.api.life import Life
from coterie.orchestrator.api.result import Result, read_result
from coterie.orchestrator.api.stream import EventStream, open_stream
from coterie.orchestrator.approvals.record import Approval
from coterie.orchestrator.approvals.records import read_records
from coterie.orchestrator.control_socket.asking import ask_root
from coterie.orchestrator.control_socket.requests import (
    AgentBegun,
    Answer,
    DecideApproval,
    Fates,
    NotStored,
    PostMail,
    Request,
    SpawnAgent,
    StopAgent,
)
from coterie.orchestrator.root_process.calling import Host
from coterie.orchestrator.root_process.words import Interrupt, Over
from coterie.orchestrator.root_record import find_root
from coterie.orchestrator.session import Session


@attrs.define(eq=False)
class LiveSession:
    """A session between the beginning and the end of its block. Made by `coterie.open_session`.

    Its methods may be called by any task of the program. They raise `SessionOver` when the session does not run any
    more, and `RequestRefused` for what cannot be done.
    """

    _session: Session
    _life: Life
    _host: Host
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
        return open_stream(self._session.directory, self._life, self._past)

    async def wait(self) -> Result:
        """What came of the task, when the session is over; how it ended is in `Result.reason`.

        Raises `SessionFailed` if its lead could not say so.
        """
        await self._life.ended()
        outcome = self._life.outcome
        if isinstance(outcome, Unable):
            raise SessionFailed(self.id, outcome.reason)
        result = await trio.to_thread.run_sync(read_result, self._session, self._past)
        is_done = isinstance(outcome, Over) and outcome.is_done
        if result is None or not (is_done or result.is_done):
            raise SessionFailed(self.id, f"it has ended before its task: {self._why}")
        return result

    async def send(self, to: str, text: str, *, summary: str | None = None) -> Receipt:
        """Send a message of the user to the agent *to*; once this returns, it is stored and reaches its model once.

        *to* is a name, or an address of another session.
        """
        if to == "*":
            raise RequestRefused(self.id, "a receipt is for one recipient; send it to each by name", "send", to)
        request = PostMail(
            to=to, body=_text("text", text), summary=None if summary is None else _text("summary", summary)
        )
        match await self._ask("send", to, request):
            case Fates(fates=(fate,)) if fate.receipt is not None:
                return fate.receipt
            case Fates(fates=(fate,)):
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
            task=prompt.strip() if stays and not prompt.strip() else _text("prompt", prompt),
            definition=kind,
            name=name,
            model=model,
            stays=stays,
            isolation="worktree" if worktree else None,
            plan=plan,
            budget_usd=budget_usd,
        )
        answer = await self._ask("spawn", name or kind, SpawnAgent(wanted=wanted))
        assert isinstance(answer, AgentBegun), answer
        return answer.spawned

    async def approvals(self) -> tuple[Approval, ...]:
        """Plans and calls that wait for somebody's yes now, the oldest first, with all they would do."""
        kept = await trio.to_thread.run_sync(read_records, self._session)
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
            self._host.say(Interrupt())

    async def _ask(self, asked: Asked, subject: str, request: Request) -> Answer:
        if len(msgspec.json.encode(request)) > FRAME_LIMIT:
            raise RequestRefused(self.id, f"it is too long: at most {FRAME_LIMIT:,} bytes can be asked", asked, subject)
        if (root := find_root(self._session)) is None:
            raise SessionOver(self.id, f"it does not run any more: {self._why}")
        try:
            return await ask_root(root, request)
        except ConfigInvalid as exc:
            if exc.source == "session":  # and not what was asked for
                raise SessionOver(self.id, exc.reason) from exc
            raise RequestRefused(self.id, exc.reason, asked, subject) from exc

    @property
    def _why(self) -> str:
        """How it has ended, as far as its root has said so."""
        if self._life.is_left:
            return "it went on alone; open it again when it has ended"
        outcome = self._life.outcome
        return (outcome.reason if outcome is not None else "its process was killed.") or "its task is done."


def _text(name: str, text: str) -> str:
    """*text*, if somebody can be told it. Raises `ConfigInvalid`."""
    if not text.strip():
        raise ConfigInvalid(name, "it is empty; say what the agent is to know")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise ConfigInvalid(name, f"it cannot be written as UTF-8: {exc.reason}") from exc
    return text
