"""Approval service of a running session: requests are stored first, then announced, and decided once.

While the root lives, what counts is in its memory; the files are read back only when it begins.
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


@attrs.frozen
class LeadNotifier:
    """Writes to the lead of one session."""

    _router: Router
    _sender: Sender
    """The root."""

    async def notify(self, approval: Approval) -> str | None:
        """Store the question for the lead; it arrives once, however often it is stored. Why it cannot be, or None."""
        claim = approval.claim
        body = PlanApprovalRequest(plan=claim.plan, agent=claim.agent, files=claim.files)
        draft = OutgoingMessage(
            to=MAIN, body=body.to_body(), kind=body.kind, id=MessageId(approval.id), time_to_live=None
        )
        try:
            await self._router.send(self._sender, draft)
        except MailboxError as exc:
            return str(exc)
        return None


@attrs.define(eq=False)
class PendingApproval:
    """One approval, as it counts."""

    approval: Approval
    is_unverified: bool = False
    """Whether its file was changed by others: nobody can decide over it, and its agent has to ask anew.

    Under another id, as the lead has heard of this one already, and may have answered it.
    """
    is_announced: bool = False
    """Whether this root has told the lead of it."""
    heard_by: int | None = None
    """The start of the agent that was told what was decided."""
    is_decided: trio.Event = attrs.field(factory=trio.Event)

    @classmethod
    def restored(cls, approval: Approval, *, is_doubted: bool) -> Self:
        """What an earlier root has kept; as open, where somebody else has changed it."""
        if is_doubted:
            return cls(Approval(id=approval.id, claim=approval.claim, asked_at=approval.asked_at), is_unverified=True)
        # Whether a yes to one call was used cannot be known any more, so it is.
        heard_by = approval.claim.incarnation if approval.claim.what == "permission" and not approval.is_open else None
        entry = cls(approval, heard_by=heard_by)
        if not approval.is_open:
            entry.is_decided.set()
        return entry

    def is_about(self, claim: ApprovalSubject) -> bool:
        """Whether *claim* asks for the same, and what was asked for can be believed."""
        return not self.is_unverified and self.approval.claim.is_same(claim)

    def applies_to(self, claim: ApprovalSubject) -> bool:
        """Whether what is, or will be, decided here is for *claim*, which it is about."""
        if self.approval.is_past or self.approval.state == "withdrawn":
            return False
        # A yes to one call is used up by whoever hears it; what was said of a plan is for a start that did not hear it.
        return self.heard_by is None or (claim.what == "plan" and self.heard_by != claim.incarnation)

    def is_superseded_by(self, claim: ApprovalSubject) -> bool:
        """Whether nobody can want this any more once its agent makes *claim*."""
        mine = self.approval.claim
        return mine.is_superseded_by(claim) or (self.is_unverified and mine.what == claim.what)


def prompt_for(approval: Approval) -> Question:
    """What the user is asked: yes lets the agent begin, and no, with a reason, lets it plan again."""
    claim = approval.claim
    return Question(
        tool="ExitPlanMode",
        subject=claim.plan,
        details={"files": "\n".join(claim.files)} if claim.files else {},
        reason=f"its plan is to be approved before it changes anything ({approval.id})",
        rules=(),
        remedy=f"coterie approvals approve {approval.id}",
        agent=claim.agent,
    )


APPROVALS_LAYER = "approvals"
RETRY_SECONDS = 5.0
"""Seconds until the lead is told again of what could not be put into its mailbox."""


@attrs.define(eq=False, kw_only=True)
class ApprovalService:
    """All of one session. Its methods are for tasks of the root, on its main thread; `restore` comes first."""

    records: ApprovalStore
    clock: Clock
    emit: Callable[[Event], None]
    lead: LeadNotifier
    wake_lead: Callable[[str], None]
    """Lets the lead read its mail, should it wait for the agent of this name, or for an agent above it."""
    user: UserPrompter | None = None
    """Prompter that is asked for plans that the user decides over."""
    _entries: dict[str, PendingApproval] = attrs.field(factory=dict, init=False)
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    _changing: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Held from looking at what counts until the change of it is kept: two answers at once are not both the first."""

    async def restore(self) -> None:
        """Read back what an earlier root has kept. What it did not sign counts as open. Raises `OSError`."""
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
        """Whether *agent*, as long as it is run, needs no more approval of a plan."""
        mine = (entry.approval for entry in self._of(agent))
        return any(each.claim.what == "plan" and each.state == "approved" for each in mine)

    async def request(self, claim: ApprovalSubject, directory: Path) -> Approval:
        """Wait until somebody has decided over *claim* of an agent that works in *directory*; that may take days.

        Cancellation leaves the request open: the same claim, made again, waits for the same answer, or gets what was
        decided meanwhile. Another plan of the agent takes the place of one that is open. Raises `ApprovalNotStored`.
        """
        entry = await self._open(claim)
        if claim.approver == RULE and entry.approval.is_open:
            await self._apply_rule(entry, directory)
        if entry.approval.is_open:
            await self._wait(entry)
        entry.heard_by = claim.incarnation
        return entry.approval

    async def decide(self, decision: ApprovalDecision) -> Approval:
        """Let *decision* count, and whoever waits for it go on. Raises `AnswerInvalid`, and an event says so too."""
        async with self._changing:
            try:
                entry = self._decidable(decision)
                await self._close(entry, "approved" if decision.approve else "rejected", decision.by, decision.feedback)
            except AnswerInvalid as exc:
                self.emit(ApprovalRejected(id=decision.id, by=decision.by, reason=exc.reason))
                raise
            except OSError as exc:
                raise AnswerInvalid(f"{decision.id} stays open, because the answer could not be kept: {exc}") from exc
        return entry.approval

    async def withdraw(self, claim: ApprovalSubject, why: str) -> None:
        """Nobody waits for *claim* any more. What cannot be kept is an event, and the request stays open."""
        async with self._changing:
            for entry in self._of(claim.agent):
                if entry.approval.claim.is_same(claim):
                    with self._emitting_failures(entry):
                        await self._withdraw_open(entry, why)

    async def close_for_agent(self, agent: str, last: int | None = None) -> None:
        """*agent* has ended, its *last* start too: what it was granted holds for no other of that name.

        What cannot be kept is an event.
        """
        async with self._changing:
            for entry in self._of(agent):
                if last is not None and entry.approval.claim.incarnation > last:
                    continue
                with self._emitting_failures(entry):
                    await self._withdraw_open(entry, "the agent has ended")
                    await self._store(entry, attrs.evolve(entry.approval, is_past=True))

    def _of(self, agent: str) -> list[PendingApproval]:
        """Those that an agent which is run has asked for."""
        entries = self._entries.values()
        return [entry for entry in entries if entry.approval.claim.agent == agent and not entry.approval.is_past]

    async def _open(self, claim: ApprovalSubject) -> PendingApproval:
        async with self._changing:
            try:
                return await self._find_existing(claim) or await self._create(claim)
            except OSError as exc:
                raise ApprovalNotStored(f"the request could not be kept: {exc}") from exc

    async def _find_existing(self, claim: ApprovalSubject) -> PendingApproval | None:
        """The entry that *claim* is about already; from now on it is this start's.

        Of several the latest: what was said of the same plan before it was asked for again does not count any more.
        """
        same = [entry for entry in self._of(claim.agent) if entry.is_about(claim)]
        if not same or not same[-1].applies_to(claim):
            return None
        entry = same[-1]
        if entry.approval.is_open and entry.approval.claim != claim:
            await self._store(entry, attrs.evolve(entry.approval, claim=claim))
        return entry

    async def _create(self, claim: ApprovalSubject) -> PendingApproval:
        for other in self._of(claim.agent):
            if other.is_superseded_by(claim):
                await self._withdraw_open(other, "the agent asked for something else")
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
        is_lead_told = claim.approver == LEAD and await self._notify_lead(entry)
        async with trio.open_nursery() as nursery:
            if claim.approver == LEAD and not is_lead_told:
                nursery.start_soon(self._notify_lead_later, entry)
            if claim.what == "plan" and not is_lead_told and self.user is not None:
                nursery.start_soon(self._ask_user, entry, self.user)
            await entry.is_decided.wait()
            nursery.cancel_scope.cancel()

    async def _notify_lead(self, entry: PendingApproval) -> bool:
        """Whether the lead knows of it; if it is not there, that is for the human."""
        if not entry.is_announced:
            if failure := await self.lead.notify(entry.approval):
                self.emit(LayerFailed(layer=APPROVALS_LAYER, reason=f"the lead could not be asked: {failure}"))
                return False
            entry.is_announced = True
        self.wake_lead(entry.approval.claim.agent)
        return True

    async def _notify_lead_later(self, entry: PendingApproval) -> None:
        """Try until the lead knows of it: a disk that was full may have room again."""
        await trio.sleep(RETRY_SECONDS)
        while await self.lead.notify(entry.approval):  # noqa: ASYNC110 - a disk does not tell when it has room
            await trio.sleep(RETRY_SECONDS)
        entry.is_announced = True
        self.wake_lead(entry.approval.claim.agent)

    async def _ask_user(self, entry: PendingApproval, user: UserPrompter) -> None:
        answer = await user.ask(prompt_for(entry.approval))
        if answer == DenyCall(NO_USER):
            return
        feedback = answer.reason if isinstance(answer, DenyCall) else ""
        decision = ApprovalDecision(id=entry.approval.id, approve=not isinstance(answer, DenyCall), feedback=feedback)
        with contextlib.suppress(AnswerInvalid):  # somebody was faster, or it is told already
            await self.decide(decision)

    async def _apply_rule(self, entry: PendingApproval, directory: Path) -> None:
        claim = entry.approval.claim
        ruling = await trio.to_thread.run_sync(decide_by_rule, claim.paths, claim.files, directory)
        async with self._changing:
            if not entry.approval.is_open:
                return  # the user was faster
            try:
                await self._close(entry, "approved" if ruling.approve else "rejected", RULE, ruling.feedback)
            except OSError as exc:
                raise ApprovalNotStored(f"what the rule says could not be kept: {exc}") from exc

    def _decidable(self, decision: ApprovalDecision) -> PendingApproval:
        if (entry := self._entries.get(decision.id)) is None:
            raise AnswerInvalid(f"there is no approval {decision.id!r}; {did_you_mean(decision.id, self._entries)}")
        if reason := rejection_reason(decision, entry.approval):
            raise AnswerInvalid(reason)
        if entry.is_unverified:
            raise AnswerInvalid(f"the file of {decision.id} was changed; its agent has to ask again first")
        return entry

    async def _withdraw_open(self, entry: PendingApproval, why: str) -> None:
        if entry.approval.is_open:
            await self._close(entry, "withdrawn", entry.approval.claim.agent, why)

    async def _close(self, entry: PendingApproval, state: ClosedState, by: str, feedback: str) -> None:
        """Keep what was decided, and then let it be known. Raises `OSError`; then it is open."""
        closed = attrs.evolve(entry.approval, state=state, by=by, feedback=feedback, decided_at=self.clock.now())
        await self._store(entry, closed)
        entry.is_decided.set()
        self.emit(ApprovalDecided(id=closed.id, name=closed.claim.agent, verdict=state, by=by, feedback=feedback))

    async def _store(self, entry: PendingApproval, approval: Approval) -> None:
        """Change what counts, on disk first: cancellation changes both or none. Raises `OSError`."""
        await trio.to_thread.run_sync(self.records.save, approval)
        entry.approval = approval

    @contextlib.contextmanager
    def _emitting_failures(self, entry: PendingApproval) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            self.emit(LayerFailed(layer=APPROVALS_LAYER, reason=f"{entry.approval.id} could not be put away: {exc}"))


async def open_approvals(
    mail: SessionMail,
    root: Sender,
    emit: Callable[[Event], None],
    wake_lead: Callable[[str], None] = lambda _: None,
    user: UserPrompter | None = None,
) -> ApprovalService:
    """Open the approvals of the session of *mail*, as an earlier root left them. *root* is the sender of requests.

    Raises `ConfigInvalid` for a key that cannot be used, and `OSError`.
    """
    key = await trio.to_thread.run_sync(ApprovalKey.of_session, mail.session.id)
    approvals = ApprovalService(
        records=ApprovalStore.of(mail.session, key),
        clock=mail.clock,
        emit=emit,
        lead=LeadNotifier(mail.router(), root),
        wake_lead=wake_lead,
        user=user,
    )
    await approvals.restore()
    return approvals
