"""An agent at work: it runs to its end, or lives on its mail, or does a chore, and waits for those who work for it.

Importing this module imports the SDK.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import attrs
import msgspec
import trio

from coterie.agents.agent import Agent
from coterie.agents.compaction.breaker import LAYER
from coterie.agents.compaction.by_hand import CompactByHand
from coterie.agents.control.chores import Chore, Dream, Extract
from coterie.agents.control.compaction_words import Compact, NotCompacted
from coterie.agents.control.station import Station
from coterie.agents.errors import ConfigInvalid, ReplyMalformed
from coterie.agents.events import LayerFailed
from coterie.agents.layers.notes import KeepNotes
from coterie.agents.lifecycle.membership import Membership
from coterie.agents.living import has_work, live
from coterie.agents.loop import close_open_calls, run_loop
from coterie.agents.outcome import Ended, Limits
from coterie.agents.tools.agent import AgentTool
from coterie.mailbox.contract import MemberState
from coterie.orchestrator.hooks.fitting import FittedHooks
from coterie.orchestrator.keeping_memory import KeptMemory
from coterie.orchestrator.keeping_warm import PrefixKeeper
from coterie.orchestrator.mailroom import Mailroom
from coterie.orchestrator.run_events import finished, started
from coterie.orchestrator.seat import Seat, Work
from coterie.orchestrator.taking_up import TakeUp
from coterie.orchestrator.waiting_for_others import wait_for_mail_or_rest

Report = Callable[[Ended], Awaitable[None]]
"""Stores what came of a run for whoever wants to know."""


@attrs.frozen(kw_only=True)
class Worker:
    """An agent that is ready to begin; nothing has been asked or told yet."""

    work: Work
    seat: Seat
    agent: Agent
    room: Mailroom
    _starting: AgentTool
    _keeper: PrefixKeeper
    _station: Station
    _take_up: TakeUp
    _by_hand: CompactByHand
    _notes: KeepNotes | None
    _memory: KeptMemory
    _hooks: FittedHooks

    async def run(self, report: Report) -> None:
        """Let the agent work until its run has ended, and *report* it before the event of the end is told.

        While agents work for it in the background it waits for what they report, and goes on. Cancellation stops at
        once, and what was recorded stays; the event of the end says so. Raises `ReplyMalformed`, `OSError`, and what
        *report* raises.
        """
        if self._notes is not None:
            self._notes.goes_on = False
        await self._between_events(self._run, report)

    async def live(self, report: Report, *, lead: str | None) -> None:
        """Let the agent work, and then on whatever comes by mail, until it is asked to end; as `agents.living.live`.

        The *lead* is told each time it is idle. Otherwise as `run`.
        """
        membership = Membership(router=self.room.router, sender=self.room.sender, lead=lead)
        agent, mail, meanwhile = self.agent, self.room.mail, self._by_hand.meanwhile
        await self._between_events(
            lambda limits: live(agent, mail, limits, membership, self._tell, self._waiting, meanwhile), report
        )

    async def do(self, chore: Chore) -> None:
        """Do *chore* instead of a task, without a turn. Calls that a crash left open are answered first.

        `Agent.interrupt` leaves all as it was, or done. What cannot be had is an event. Raises `ConfigInvalid` for what
        cannot be meant, and `OSError`.
        """
        close_open_calls(self.agent)
        if self.agent.conversation.messages:
            await self._do(chore)
            return
        # A session that was made for it has no other run by which one could tell that it has ended.
        end = Ended(reason="cancelled")
        self.agent.tell(started(self.work, self.seat, self.agent))
        try:
            await self._do(chore)
            if not self.agent.scope.cancelled_caught:
                end = Ended(reason="completed")
        finally:
            self.agent.tell(finished(end))

    async def _do(self, chore: Chore) -> None:
        with self.agent.scope:
            match chore:
                case Compact():
                    await self._compact(chore)
                case Extract():
                    await self._memory.extract()
                case Dream():
                    await self._memory.dream(chore)

    async def _compact(self, word: Compact) -> None:
        answer = await self._by_hand.do(self.agent, word)
        if isinstance(answer, NotCompacted) and answer.is_for_user:
            raise ConfigInvalid("message", answer.reason)
        if isinstance(answer, NotCompacted):
            self.agent.tell(LayerFailed(layer=LAYER, reason=answer.reason))

    async def _between_events(self, run: Callable[[Limits], Awaitable[Ended]], report: Report) -> None:
        end, given = finished(Ended(reason="cancelled")), self.work.settings
        limits = Limits(turns=given.max_turns, tokens=given.max_tokens_total, seconds=given.max_seconds)
        self.agent.tell(started(self.work, self.seat, self.agent))
        try:
            await self._take_up(self.agent)
            # Who interrupts it before its loop has begun means this run all the same.
            is_interrupted = self.agent.scope.cancel_called
            ended = Ended(reason="cancelled") if is_interrupted else await run(limits)
            if ended.reason == "completed":
                await self._by_hand.serve(self.agent)
            await self._hooks.end(ended.reason)
            # Whoever sees that it has finished can count on its report.
            await report(ended)
            end = finished(ended)
        except (ReplyMalformed, OSError) as exc:
            end = msgspec.structs.replace(end, reason="failed", error=_failure(exc))
            raise
        finally:
            self.agent.tell(end)

    async def _run(self, limits: Limits) -> Ended:
        if has_work(self.agent):
            ended = await self._run_loop(limits)
        else:
            # Woken by what was no message for it, or ended by a crash when all was said.
            ended = Ended(reason="completed", text=_last_words(self.agent))
        while ended.reason == "completed":
            with trio.CancelScope() as self.agent.scope:
                is_woken = await self._is_woken()
            if self.agent.scope.cancel_called:
                # Who interrupts it while it waits for others means the run all the same.
                return attrs.evolve(ended, reason="cancelled")
            if not is_woken:
                return ended
            ended += await self._run_loop(limits.without(ended))
        return ended

    async def _run_loop(self, limits: Limits) -> Ended:
        ended = await run_loop(self.agent, limits)
        if ended.reason == "completed":
            self._memory.finished()
        return ended

    def _tell(self, state: MemberState) -> None:
        if state != "ended":
            self._station.tell(state)

    def _unheard(self) -> int:
        """How many agents work for this one in the background."""
        return len(self._starting.pending - self.room.mail.reports)

    def _waiting(self) -> AbstractAsyncContextManager[None]:
        """A wait for mail: while others work for the agent, it will go on with what it has."""
        return self._keeper.waiting() if self._unheard() or self._leads else nullcontext()

    @property
    def _leads(self) -> bool:
        """Whether somebody may be at work for it though no report is due: one who stays, or was written to again."""
        starting = self._starting
        return self.work.leads or starting.has_teammate or (starting.has_started and self.room.router.has_sent)

    async def _is_woken(self) -> bool:
        """Wait for mail while somebody is there who may send some; whether there is something to do then."""
        unheard, mail = self._unheard(), self.room.mail
        if not (unheard or self._leads):
            return False
        self._station.tell("waiting", f"{unheard} agent{'s' if unheard > 1 else ''}" if unheard else "the team")
        await self._by_hand.meanwhile(self.agent, self._wait_for_mail)
        if not (mail.look() or mail.shutdown.requests or has_work(self.agent)):
            return False
        self._station.tell("running")
        added = mail.add(self.agent, ())
        if added.blocks:  # else it has come with a compaction
            self.agent.say("user", added.blocks, *added.records)
        return True

    async def _wait_for_mail(self) -> None:
        async with self._waiting():
            if self._unheard():
                await self.room.mail.wait_for_work()
            else:
                await wait_for_mail_or_rest(self.room, self._station.spawner)


def _last_words(agent: Agent) -> str:
    """The text of the last reply."""
    role, blocks = agent.conversation.messages[-1]
    read = (msgspec.json.decode(block) for block in blocks if role == "assistant")
    return "".join(block["text"] for block in read if block["type"] == "text")


def _failure(error: ReplyMalformed | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    return str(error)
