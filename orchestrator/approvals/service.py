"""Approval service of a running session: each request is stored first, then announced, and decided once.

The state in memory of the root (supervisor process) is authoritative; a root reads the files only when it starts.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import attrs
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.events.root_events import ApprovalAsked, ApprovalDecided, ApprovalRejected
from coterie.agents.permissions.plan_approval import LEAD, RULE
from coterie.agents.permissions.types import DenyCall, Question, UserPrompter
from coterie.agents.root_link.remote_services import NO_USER
from coterie.clock import Clock
from coterie.mailbox.envelope import MessageId, Sender
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.message_bodies import PlanApprovalRequest
from coterie.mailbox.router import OutgoingMessage, Router
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.approvals.approval_policy import (
    AnswerInvalid,
    ApprovalDecision,
    ApprovalNotStored,
    decide_by_rule,
    rejection_reason,
)
from coterie.orchestrator.approvals.store import Approval, ApprovalKey, ApprovalStore, ApprovalSubject, ClosedState
from coterie.session_directory import MAIN
from coterie.suggestions import did_you_mean


@attrs.define(eq=False)
class PendingApproval:
    """Approval request of an agent with its decision, if any, in the memory of the root (supervisor process)."""

    approval: Approval
    is_unverified: bool = False
    """True if another process changed its file. It cannot be decided, and its agent must ask again.

    The new request gets another id, because the lead has seen this one and may have answered it.
    """
    is_announced: bool = False
    """True if this root (supervisor process) has sent the lead (first agent) the plan in this request."""
    delivered_to: int | None = None
    """Incarnation (start number) of the agent that received the decision; None if it was not delivered."""
    is_decided: trio.Event = attrs.field(factory=trio.Event)

    @classmethod
    def restored(cls, approval: Approval, *, is_doubted: bool) -> Self:
        """Restore *approval*, which an earlier root (supervisor process) of this session stored.

        If *is_doubted*, another process has changed its file: it is open again, and the agent must ask again.
        """
        if is_doubted:
            return cls(Approval(id=approval.id, claim=approval.claim, asked_at=approval.asked_at), is_unverified=True)
        # The earlier root may or may not have delivered a permission; count it as used, so that it is not used twice.
        is_used = approval.claim.what == "permission" and not approval.is_open
        entry = cls(approval, delivered_to=approval.claim.incarnation if is_used else None)
        if not approval.is_open:
            entry.is_decided.set()
        return entry

    def applies_to(self, claim: ApprovalSubject) -> bool:
        """True if this approval answers *claim*, a repeated request of the same agent with the same content.

        False if it is withdrawn, of an ended agent, or used: a permission once, a plan once in each start of the agent.
        """
        if self.approval.is_past or self.approval.state == "withdrawn":
            return False
        # A permission is used up on delivery; a plan decision is also delivered to a later incarnation.
        return self.delivered_to is None or (claim.what == "plan" and self.delivered_to != claim.incarnation)

    def is_superseded_by(self, claim: ApprovalSubject) -> bool:
        """True if *claim*, a later request of this agent, replaces this: a newer plan, or a call after its restart.

        A request whose file another process has changed is also replaced by any of its kind (plan, permission).
        """
        mine = self.approval.claim
        return mine.is_superseded_by(claim) or (self.is_unverified and mine.what == claim.what)


APPROVALS_LAYER = "approvals"
RETRY_SECONDS = 5.0
"""Seconds between attempts to store a plan approval request in the mailbox of the lead (first agent)."""


@attrs.define(eq=False, kw_only=True)
class ApprovalService:
    """Approval requests of one session, in its root (supervisor process). Call `restore` before the other methods."""

    records: ApprovalStore
    clock: Clock
    emit: Callable[[Event], None]
    router: Router
    sender: Sender
    """Identity of the root (supervisor process), with which it sends messages to the lead (first agent)."""
    wake_lead: Callable[[str], None]
    """Callback that ends the lead's wait for the named agent, or for an ancestor of it, so that it reads its mail."""
    user: UserPrompter | None = None
    """Prompter for plans that the user decides, also if the lead could not be asked; None if there is none."""
    _entries: dict[str, PendingApproval] = attrs.field(factory=dict, init=False)
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    _changing: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Held from reading an approval until its change is stored, so that only the first of two answers counts."""

    async def restore(self) -> None:
        """Load the approvals that earlier roots (supervisor processes) stored. Raises `OSError`.

        An approval without a valid signature becomes open again and cannot be decided: its agent must ask again.
        """
        kept = await trio.to_thread.run_sync(lambda: tuple(self.records.load()))
        numbers = (each.path.stem.rpartition("-")[2] for each in kept)
        self._numbers = itertools.count(1 + max((int(number) for number in numbers if number.isdecimal()), default=0))
        for each in kept:
            if each.doubt is not None:
                self.emit(ApprovalRejected(id=each.path.stem, by=str(each.path), reason=each.doubt))
            if each.approval is not None:
                self._entries[each.approval.id] = PendingApproval.restored(
                    each.approval, is_doubted=each.doubt is not None
                )

    def is_approved(self, agent: str) -> bool:
        """True if a plan of *agent* has been approved since the agent was spawned."""
        mine = (entry.approval for entry in self._of(agent))
        return any(each.claim.what == "plan" and each.state == "approved" for each in mine)

    async def request(self, claim: ApprovalSubject, directory: Path) -> Approval:
        """Ask for the approval of *claim*, a plan or a call, and return it when it is decided or withdrawn.

        That may take days. *directory* is the agent's working directory. Cancellation leaves the request open: a call
        with the same *claim* waits for the same answer, or gets the decision that was made in the meantime. If *claim*
        is a plan, an open request for an older plan of the agent is withdrawn. Raises `ApprovalNotStored`.
        """
        async with self._changing:
            try:
                entry = await self._find_existing(claim) or await self._create(claim)
            except OSError as exc:
                raise ApprovalNotStored(f"the approval request could not be stored: {exc}; try again later") from exc
        if claim.approver == RULE and entry.approval.is_open:
            await self._apply_rule(entry, directory)
        if entry.approval.is_open:
            await self._wait(entry)
        entry.delivered_to = claim.incarnation
        return entry.approval

    async def decide(self, decision: ApprovalDecision) -> Approval:
        """Store *decision*, wake the task that waits in `request`, and return the decided approval.

        An invalid decision is also emitted as an event. Raises `AnswerInvalid` if *decision* is invalid or cannot be
        stored.
        """
        async with self._changing:
            try:
                entry = self._decidable(decision)
                await self._close(entry, "approved" if decision.approve else "rejected", decision.by, decision.feedback)
            except AnswerInvalid as exc:
                self.emit(ApprovalRejected(id=decision.id, by=decision.by, reason=exc.reason))
                raise
            except OSError as exc:
                raise AnswerInvalid(f"approval {decision.id}: the answer was not stored: {exc}; answer again") from exc
        return entry.approval

    async def withdraw(self, claim: ApprovalSubject, why: str) -> None:
        """Withdraw the open request for *claim*, for the reason *why*. A failed write is emitted as an event."""
        async with self._changing:
            for entry in self._of(claim.agent):
                if entry.approval.claim.is_same(claim):
                    with self._emitting_failures(entry):
                        await self._withdraw_open(entry, why)

    async def close_for_agent(self, agent: str, last: int | None = None) -> None:
        """Withdraw the open requests of the ended *agent*; no decision applies to a later agent of that name.

        Requests of a start (incarnation) after number *last* are skipped; None closes all. A failed write is emitted as
        an event.
        """
        async with self._changing:
            for entry in self._of(agent):
                if last is not None and entry.approval.claim.incarnation > last:
                    continue
                with self._emitting_failures(entry):
                    await self._withdraw_open(entry, "the agent has ended")
                    await self._store(entry, attrs.evolve(entry.approval, is_past=True))

    def _of(self, agent: str) -> list[PendingApproval]:
        """Return the approvals, open or decided, that *agent* has requested since it was spawned."""
        entries = self._entries.values()
        return [entry for entry in entries if entry.approval.claim.agent == agent and not entry.approval.is_past]

    async def _find_existing(self, claim: ApprovalSubject) -> PendingApproval | None:
        """Return the approval, open or decided, that answers *claim*; None if a new one is needed.

        Only the latest approval with the same content is considered. If it is open, *claim* is stored as its request,
        because the agent may have been restarted.
        """
        mine = (entry for entry in self._of(claim.agent) if not entry.is_unverified)
        same = [entry for entry in mine if entry.approval.claim.is_same(claim)]
        if not same or not same[-1].applies_to(claim):
            return None
        entry = same[-1]
        if entry.approval.is_open and entry.approval.claim != claim:
            await self._store(entry, attrs.evolve(entry.approval, claim=claim))
        return entry

    async def _create(self, claim: ApprovalSubject) -> PendingApproval:
        for other in self._of(claim.agent):
            if other.is_superseded_by(claim):
                await self._withdraw_open(other, "the agent made another request")
        id_ = f"{claim.what}-{next(self._numbers)}"
        entry = PendingApproval(Approval(id=id_, claim=claim, asked_at=self.clock.now()))
        await self._store(entry, entry.approval)
        self._entries[id_] = entry
        self.emit(
            ApprovalAsked(
                id=id_,
                what=claim.what,
                name=claim.agent,
                incarnation=claim.incarnation,
                by=claim.approver,
                subject=entry.approval.subject,
            )
        )
        return entry

    async def _wait(self, entry: PendingApproval) -> None:
        claim = entry.approval.claim
        is_notified = claim.approver == LEAD and await self._notify_lead(entry)
        async with trio.open_nursery() as nursery:
            if claim.approver == LEAD and not is_notified:
                nursery.start_soon(self._notify_lead_later, entry)
            if claim.what == "plan" and not is_notified and self.user is not None:
                nursery.start_soon(self._ask_user, entry, self.user)
            await entry.is_decided.wait()
            nursery.cancel_scope.cancel()

    async def _notify_lead(self, entry: PendingApproval) -> bool:
        """Ask the lead (first agent) to decide the plan in *entry*. False if that failed; the user is asked then."""
        if not entry.is_announced:
            if failure := await self._message_lead(entry.approval):
                self.emit(LayerFailed(layer=APPROVALS_LAYER, reason=f"the lead was not asked about a plan: {failure}"))
                return False
            entry.is_announced = True
        self.wake_lead(entry.approval.claim.agent)
        return True

    async def _message_lead(self, approval: Approval) -> str | None:
        """Send the lead a message that asks to decide *approval*. Return the error as text; None after success.

        The message id is the approval id, so the lead gets it once, even after repeated calls.
        """
        claim = approval.claim
        body = PlanApprovalRequest(plan=claim.plan, agent=claim.agent, files=claim.files)
        draft = OutgoingMessage(
            to=MAIN, body=body.to_body(), kind=body.kind, id=MessageId(approval.id), time_to_live=None
        )
        try:
            await self.router.send(self.sender, draft)
        except MailboxError as exc:
            return str(exc)
        return None

    async def _notify_lead_later(self, entry: PendingApproval) -> None:
        """Retry to send the lead the plan in *entry* until that succeeds, for example after the disk was full."""
        await trio.sleep(RETRY_SECONDS)
        while await self._message_lead(entry.approval):  # noqa: ASYNC110 - no event signals that a disk has space again
            await trio.sleep(RETRY_SECONDS)
        entry.is_announced = True
        self.wake_lead(entry.approval.claim.agent)

    async def _ask_user(self, entry: PendingApproval, user: UserPrompter) -> None:
        """Ask *user* to approve the plan in *entry*, and store the answer as the decision.

        A refusal rejects the plan, with the reason as feedback. Nothing is decided if no user can be asked.
        """
        id_, claim = entry.approval.id, entry.approval.claim
        question = Question(
            tool="ExitPlanMode",
            subject=claim.plan,
            details={"files": "\n".join(claim.files)} if claim.files else {},
            reason=f"its plan needs approval before it changes anything ({id_})",
            rules=(),
            remedy=f"coterie approvals approve {id_}",
            agent=claim.agent,
        )
        answer = await user.ask(question)
        if answer == DenyCall(NO_USER):
            return
        feedback = answer.reason if isinstance(answer, DenyCall) else ""
        decision = ApprovalDecision(id=id_, approve=not isinstance(answer, DenyCall), feedback=feedback)
        with contextlib.suppress(AnswerInvalid):  # decided by another client, or already reported as an event
            await self.decide(decision)

    async def _apply_rule(self, entry: PendingApproval, directory: Path) -> None:
        claim = entry.approval.claim
        ruling = await trio.to_thread.run_sync(decide_by_rule, claim.paths, claim.files, directory)
        async with self._changing:
            if not entry.approval.is_open:
                return  # the user decided first
            try:
                await self._close(entry, "approved" if ruling.approve else "rejected", RULE, ruling.feedback)
            except OSError as exc:
                raise ApprovalNotStored(f"the decision of the rule was not stored: {exc}; try again later") from exc

    def _decidable(self, decision: ApprovalDecision) -> PendingApproval:
        if (entry := self._entries.get(decision.id)) is None:
            raise AnswerInvalid(f"unknown approval {decision.id!r}; {did_you_mean(decision.id, self._entries)}")
        if reason := rejection_reason(decision, entry.approval):
            raise AnswerInvalid(reason)
        if entry.is_unverified:
            raise AnswerInvalid(
                f"approval {decision.id} cannot be answered, because another process changed its file; "
                "the agent must send a new request"
            )
        return entry

    async def _withdraw_open(self, entry: PendingApproval, why: str) -> None:
        if entry.approval.is_open:
            await self._close(entry, "withdrawn", entry.approval.claim.agent, why)

    async def _close(self, entry: PendingApproval, state: ClosedState, by: str, feedback: str) -> None:
        """Store the final *state*, wake the waiting task and emit an event. After `OSError` the approval stays open."""
        closed = attrs.evolve(entry.approval, state=state, by=by, feedback=feedback, decided_at=self.clock.now())
        await self._store(entry, closed)
        entry.is_decided.set()
        self.emit(ApprovalDecided(id=closed.id, name=closed.claim.agent, verdict=state, by=by, feedback=feedback))

    async def _store(self, entry: PendingApproval, approval: Approval) -> None:
        """Write *approval* to disk, then set it in *entry*. Cancellation changes both or neither. Raises `OSError`."""
        await trio.to_thread.run_sync(self.records.save, approval)
        entry.approval = approval

    @contextlib.contextmanager
    def _emitting_failures(self, entry: PendingApproval) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            self.emit(LayerFailed(layer=APPROVALS_LAYER, reason=f"approval {entry.approval.id} was not updated: {exc}"))


async def open_approvals(
    mail: SessionMail,
    root: Sender,
    emit: Callable[[Event], None],
    wake_lead: Callable[[str], None] = lambda _: None,
    user: UserPrompter | None = None,
) -> ApprovalService:
    """Open the approval service of the session of *mail* and load its stored approvals.

    *root* is the sender of messages to the lead. *wake_lead* is called with the name of an agent whose plan waits for
    the lead. *user* is asked about plans that the lead does not decide or did not get; None leaves them to the user's
    commands. Raises `ConfigInvalid` for an unusable key, and `OSError`.
    """
    key = await trio.to_thread.run_sync(ApprovalKey.of_session, mail.session.id)
    approvals = ApprovalService(
        records=ApprovalStore.of(mail.session, key),
        clock=mail.clock,
        emit=emit,
        router=mail.router(),
        sender=root,
        wake_lead=wake_lead,
        user=user,
    )
    await approvals.restore()
    return approvals
