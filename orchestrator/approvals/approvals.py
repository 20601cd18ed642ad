"""The approvals of a session that runs: asked for once, kept before anybody hears of it, and decided once.

While the root lives, what counts is in its memory; the files are read back only when it begins.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import trio

from coterie.agents.control.asker import NOBODY
from coterie.agents.events import AnswerRefused, ApprovalAsked, ApprovalDecided, Event, LayerFailed
from coterie.agents.nearest import suggestion
from coterie.agents.permissions import Asker, Refusal
from coterie.clock import Clock
from coterie.orchestrator.approvals.announcing import LeadPost
from coterie.orchestrator.approvals.entry import Entry
from coterie.orchestrator.approvals.errors import AnswerInvalid, NotAsked
from coterie.orchestrator.approvals.judging import LEAD, RULE, Decision, judge_by_rule, refusal_of
from coterie.orchestrator.approvals.question import question_of
from coterie.orchestrator.approvals.record import Approval, Claim, Closed
from coterie.orchestrator.approvals.records import Records

LAYER = "approvals"
ASK_AGAIN = 5.0
"""Seconds until the lead is told again of what could not be put into its mailbox."""


@attrs.define(eq=False, kw_only=True)
class Approvals:
    """All of one session. Its methods are for tasks of the root, on its main thread; `restore` comes first."""

    records: Records
    clock: Clock
    tell: Callable[[Event], None]
    lead: LeadPost
    user: Asker | None = None
    """Who sits at the terminal, and is asked for plans that the user decides over."""
    free_lead: Callable[[str], None] = lambda _: None
    """Lets the lead hear its mail, should it wait for the agent named, or for one that started that."""
    _entries: dict[str, Entry] = attrs.field(factory=dict, init=False)
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
                self.tell(AnswerRefused(id=each.path.stem, by=str(each.path), reason=each.doubt))
            if each.approval is not None:
                self._entries[each.approval.id] = Entry.restored(each.approval, is_doubted=each.doubt is not None)

    def is_approved(self, agent: str) -> bool:
        """Whether *agent*, as long as it is run, needs no more approval of a plan."""
        mine = (entry.approval for entry in self._of(agent))
        return any(each.claim.what == "plan" and each.state == "approved" for each in mine)

    async def judged(self, claim: Claim, directory: Path) -> Approval:
        """Wait until somebody has decided over *claim* of an agent that works in *directory*; that may take days.

        Cancellation leaves the request open: the same claim, made again, waits for the same answer, or gets what was
        decided meanwhile. Another plan of the agent takes the place of one that is open. Raises `NotAsked`.
        """
        entry = await self._open(claim)
        if claim.approver == RULE and entry.approval.is_open:
            await self._rule(entry, directory)
        if entry.approval.is_open:
            await self._wait(entry)
        entry.heard_by = claim.incarnation
        return entry.approval

    async def decide(self, decision: Decision) -> Approval:
        """Let *decision* count, and whoever waits for it go on. Raises `AnswerInvalid`, and an event says so too."""
        async with self._changing:
            try:
                entry = self._decidable(decision)
                await self._close(entry, "approved" if decision.approve else "rejected", decision.by, decision.feedback)
            except AnswerInvalid as exc:
                self.tell(AnswerRefused(id=decision.id, by=decision.by, reason=exc.reason))
                raise
            except OSError as exc:
                raise AnswerInvalid(f"{decision.id} stays open, because the answer could not be kept: {exc}") from exc
        return entry.approval

    async def withdraw(self, claim: Claim, why: str) -> None:
        """Nobody waits for *claim* any more. What cannot be kept is an event, and the request stays open."""
        async with self._changing:
            for entry in self._of(claim.agent):
                if entry.approval.claim.is_same(claim):
                    with self._telling_failures(entry):
                        await self._withdraw_open(entry, why)

    async def close_of(self, agent: str, last: int | None = None) -> None:
        """*agent* has ended, its *last* start too: what it was granted holds for no other of that name.

        What cannot be kept is an event.
        """
        async with self._changing:
            for entry in self._of(agent):
                if last is not None and entry.approval.claim.incarnation > last:
                    continue
                with self._telling_failures(entry):
                    await self._withdraw_open(entry, "the agent has ended")
                    await self._keep(entry, attrs.evolve(entry.approval, is_past=True))

    def _of(self, agent: str) -> list[Entry]:
        """Those that an agent which is run has asked for."""
        entries = self._entries.values()
        return [entry for entry in entries if entry.approval.claim.agent == agent and not entry.approval.is_past]

    async def _open(self, claim: Claim) -> Entry:
        async with self._changing:
            try:
                return await self._found(claim) or await self._begun(claim)
            except OSError as exc:
                raise NotAsked(f"the request could not be kept: {exc}") from exc

    async def _found(self, claim: Claim) -> Entry | None:
        """The entry that *claim* is about already; from now on it is this start's.

        Of several the latest: what was said of the same plan before it was asked for again does not count any more.
        """
        same = [entry for entry in self._of(claim.agent) if entry.is_about(claim)]
        if not same or not same[-1].answers(claim):
            return None
        entry = same[-1]
        if entry.approval.is_open and entry.approval.claim != claim:
            await self._keep(entry, attrs.evolve(entry.approval, claim=claim))
        return entry

    async def _begun(self, claim: Claim) -> Entry:
        for other in self._of(claim.agent):
            if other.gives_way_to(claim):
                await self._withdraw_open(other, "the agent asked for something else")
        id_ = f"{claim.what}-{next(self._numbers)}"
        entry = Entry(Approval(id=id_, claim=claim, asked_at=self.clock.now()))
        await self._keep(entry, entry.approval)
        self._entries[id_] = entry
        self.tell(
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

    async def _wait(self, entry: Entry) -> None:
        claim = entry.approval.claim
        is_lead_told = claim.approver == LEAD and await self._tell_lead(entry)
        async with trio.open_nursery() as nursery:
            if claim.approver == LEAD and not is_lead_told:
                nursery.start_soon(self._tell_lead_later, entry)
            if claim.what == "plan" and not is_lead_told and self.user is not None:
                nursery.start_soon(self._ask_user, entry, self.user)
            await entry.is_decided.wait()
            nursery.cancel_scope.cancel()

    async def _tell_lead(self, entry: Entry) -> bool:
        """Whether the lead knows of it; if it is not there, that is for the human."""
        if not entry.is_announced:
            if failure := await self.lead.ask(entry.approval):
                self.tell(LayerFailed(layer=LAYER, reason=f"the lead could not be asked: {failure}"))
                return False
            entry.is_announced = True
        self.free_lead(entry.approval.claim.agent)
        return True

    async def _tell_lead_later(self, entry: Entry) -> None:
        """Try until the lead knows of it: a disk that was full may have room again."""
        await trio.sleep(ASK_AGAIN)
        while await self.lead.ask(entry.approval):  # noqa: ASYNC110 - a disk does not tell when it has room
            await trio.sleep(ASK_AGAIN)
        entry.is_announced = True
        self.free_lead(entry.approval.claim.agent)

    async def _ask_user(self, entry: Entry, user: Asker) -> None:
        answer = await user.ask(question_of(entry.approval))
        if answer == Refusal(NOBODY):
            return
        feedback = answer.reason if isinstance(answer, Refusal) else ""
        decision = Decision(id=entry.approval.id, approve=not isinstance(answer, Refusal), feedback=feedback)
        with contextlib.suppress(AnswerInvalid):  # somebody was faster, or it is told already
            await self.decide(decision)

    async def _rule(self, entry: Entry, directory: Path) -> None:
        claim = entry.approval.claim
        ruling = await trio.to_thread.run_sync(judge_by_rule, claim.paths, claim.files, directory)
        async with self._changing:
            if not entry.approval.is_open:
                return  # the user was faster
            try:
                await self._close(entry, "approved" if ruling.approve else "rejected", RULE, ruling.feedback)
            except OSError as exc:
                raise NotAsked(f"what the rule says could not be kept: {exc}") from exc

    def _decidable(self, decision: Decision) -> Entry:
        if (entry := self._entries.get(decision.id)) is None:
            raise AnswerInvalid(f"there is no approval {decision.id!r}; {suggestion(decision.id, self._entries)}")
        if reason := refusal_of(decision, entry.approval):
            raise AnswerInvalid(reason)
        if entry.is_doubted:
            raise AnswerInvalid(f"the file of {decision.id} was changed; its agent has to ask again first")
        return entry

    async def _withdraw_open(self, entry: Entry, why: str) -> None:
        if entry.approval.is_open:
            await self._close(entry, "withdrawn", entry.approval.claim.agent, why)

    async def _close(self, entry: Entry, state: Closed, by: str, feedback: str) -> None:
        """Keep what was decided, and then let it be known. Raises `OSError`; then it is open."""
        closed = attrs.evolve(entry.approval, state=state, by=by, feedback=feedback, decided_at=self.clock.now())
        await self._keep(entry, closed)
        entry.is_decided.set()
        self.tell(ApprovalDecided(id=closed.id, name=closed.claim.agent, verdict=state, by=by, feedback=feedback))

    async def _keep(self, entry: Entry, approval: Approval) -> None:
        """Change what counts, on disk first: cancellation changes both or none. Raises `OSError`."""
        await trio.to_thread.run_sync(self.records.save, approval)
        entry.approval = approval

    @contextlib.contextmanager
    def _telling_failures(self, entry: Entry) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            self.tell(LayerFailed(layer=LAYER, reason=f"{entry.approval.id} could not be put away: {exc}"))
