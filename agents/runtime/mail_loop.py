"""Mail loop: an agent works, waits for mail and works again until it is asked to end."""

import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import attrs
import trio

from coterie.agents.errors import ControlLost, ReplyMalformed
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.run_result import RunEnded, RunLimits
from coterie.agents.root_link.spawn_request import Spawner
from coterie.agents.runtime.setup.agent_mail import AgentMail
from coterie.agents.runtime.team_membership import TeamMembership
from coterie.mailbox.contract import MemberState
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.message_bodies import ShutdownResponse

IdleWait = Callable[[Agent, Callable[[], Awaitable[None]]], Awaitable[None]]
"""Waits for mail in the way it is given, and does meanwhile what else is asked for.

It may return early: what has come is then in the conversation.
"""


async def wait_only(_agent: Agent, wait: Callable[[], Awaitable[None]]) -> None:
    """The `IdleWait` of an agent of which nothing else is asked."""
    await wait()


async def run_mail_loop(
    agent: Agent,
    mail: Messaging,
    limits: RunLimits,
    membership: TeamMembership,
    tell_state: Callable[[MemberState], None] = lambda _: None,
    waiting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    meanwhile: IdleWait = wait_only,
) -> RunEnded:
    """Let *agent* work on what it has, and on whatever comes by *mail*, until a run ends otherwise than completed.

    *limits* are those of one run. Every change between running and idle is told, and the lead hears of each time it is
    idle; each wait for mail is in a block of *waiting*, and left to *meanwhile*. Asked to end, the agent finishes its
    tool round and has one more turn to wrap up, or none if it has nothing to do; at the deadline it is interrupted,
    with its open calls answered. Either way the end is `shutdown`, and the response is stored before this returns.
    Cancellation stops it at once and answers nobody; mail that is not in the transcript by then is delivered to its
    next start. Raises as `run_loop` and *meanwhile* do, and `MailboxFailed` when the mailbox of an idle agent cannot be
    read.
    """
    ended: RunEnded | None = None

    async def wait() -> None:
        async with waiting():
            await mail.wait_for_work()

    while True:
        if has_work(agent):
            tell_state("running")
            ended = await _run(agent, mail, limits)
            if ended.reason != "completed" or mail.shutdown.is_known:
                break
        if not mail.shutdown.requests:
            tell_state("idle")
            await membership.notify_idle(agent, None if ended is None else ended.reason)
        await meanwhile(agent, wait)
        if mail.has_work:
            added = mail.add_blocks(agent, ())
            agent.append_message("user", added.blocks, *added.records)
        elif mail.shutdown.requests:
            break
    if mail.shutdown.requests:
        return await _shut_down(agent, mail, membership, ended or RunEnded(reason="completed"))
    assert ended is not None, "an agent that was not asked to end goes on until a run ends badly"
    return ended


def has_work(agent: Agent) -> bool:
    """Whether the conversation ends with something that the model has not answered."""
    last = agent.conversation.prefix.last
    return last is not None and last.role == "user"


async def _run(agent: Agent, mail: Messaging, limits: RunLimits) -> RunEnded:
    """One run of the loop, interrupted when a deadline passes that came by mail."""
    failure: ReplyMalformed | OSError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_interrupt_at_deadline, agent, mail)
        try:
            ended = await run_loop(agent, limits)
        except (ReplyMalformed, OSError) as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:  # raised out here, where it is not put into a group
        raise failure
    return ended


async def _interrupt_at_deadline(agent: Agent, mail: Messaging) -> None:
    """Hear a request to end while the agent is busy, and interrupt it at the deadline."""
    while trio.current_time() < mail.shutdown.deadline:
        with trio.move_on_at(mail.shutdown.deadline):
            await _receive(agent, mail)
    agent.interrupt()


async def _receive(agent: Agent, mail: Messaging) -> None:
    try:
        await mail.receive()
    except MailboxFailed as exc:
        agent.emit(LayerFailed(layer="mail", reason=str(exc)))
        await trio.sleep_forever()  # the tool rounds try again; trying here would never pause


async def _shut_down(agent: Agent, mail: Messaging, membership: TeamMembership, last: RunEnded) -> RunEnded:
    """Answer everybody who asked for it, and say that this is why it ends."""
    response = _response(last, is_late=trio.current_time() >= mail.shutdown.deadline)
    for request in mail.shutdown.requests.values():
        await membership.respond(agent, request, response)
    await mail.acknowledge_all(agent)
    return attrs.evolve(last, reason="shutdown")


def _response(last: RunEnded, *, is_late: bool) -> ShutdownResponse:
    if last.reason == "cancelled":
        reason = "the deadline has passed, and what it was doing was interrupted" if is_late else "it was interrupted"
        return ShutdownResponse(accepted=False, reason=reason)
    words = {"completed": "it had nothing more to do", "shutdown": "it has wrapped up"}
    return ShutdownResponse(accepted=True, reason=words.get(last.reason, f"its run has ended: {last.reason}"))


async def wait_for_mail_or_idle_team(room: AgentMail, spawner: Spawner) -> None:
    """Return when mail has come that is worth a turn, or asks to end, or when nobody is left who would send any.

    In the last case all that they sent before is stored. Raises as `Messaging.wait_for_work` does.
    """
    failure: MailboxFailed | None = None
    async with trio.open_nursery() as nursery:

        async def rest() -> None:
            with contextlib.suppress(ControlLost):  # whoever listens on the line finds out
                await _wait_until_idle(room, spawner)
                nursery.cancel_scope.cancel()

        nursery.start_soon(rest)
        try:
            await room.messaging.wait_for_work()
        except MailboxFailed as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:  # raised out here, where it is not put into a group
        raise failure


async def _wait_until_idle(room: AgentMail, spawner: Spawner) -> None:
    """Return when the root finds everybody at rest, and nothing was on its way within this process meanwhile.

    Who shares the process has said that it works before its mail counts as read. So the root has heard it if that was
    before it was asked, and if nothing was sent since, nobody can have been woken.
    """
    while True:
        is_read, sent = room.is_delivered_in_process, room.sent_in_process
        await spawner.wait_until_idle()
        if is_read and sent == room.sent_in_process:
            return
        await trio.lowlevel.checkpoint()
