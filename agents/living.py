"""A long-lived agent: it works, waits for mail, and works again, until it is asked to end."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import attrs
import trio

from coterie.agents.agent import Agent
from coterie.agents.errors import ReplyMalformed
from coterie.agents.events import LayerFailed
from coterie.agents.layers.mail import DeliverMail
from coterie.agents.lifecycle.membership import Membership
from coterie.agents.loop import run_loop
from coterie.agents.outcome import Ended, Limits
from coterie.mailbox.contract import MemberState
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.lifecycle import ShutdownResponse

Meanwhile = Callable[[Agent, Callable[[], Awaitable[None]]], Awaitable[None]]
"""Waits for mail in the way it is given, and does meanwhile what else is asked for.

It may return early: what has come is then in the conversation.
"""


async def only_wait(_agent: Agent, wait: Callable[[], Awaitable[None]]) -> None:
    """The `Meanwhile` of an agent of which nothing else is asked."""
    await wait()


async def live(
    agent: Agent,
    mail: DeliverMail,
    limits: Limits,
    membership: Membership,
    tell_state: Callable[[MemberState], None] = lambda _: None,
    waiting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    meanwhile: Meanwhile = only_wait,
) -> Ended:
    """Let *agent* work on what it has, and on whatever comes by *mail*, until a run ends otherwise than completed.

    *limits* are those of one run. Every change between running and idle is told, and the lead hears of each time it is
    idle; each wait for mail is in a block of *waiting*, and left to *meanwhile*. Asked to end, the agent finishes its
    tool round and has one more turn to wrap up, or none if it has nothing to do; at the deadline it is interrupted,
    with its open calls answered. Either way the end is `shutdown`, and the response is stored before this returns.
    Cancellation stops it at once and answers nobody; mail that is not in the transcript by then is delivered to its
    next start. Raises as `run_loop` and *meanwhile* do, and `MailboxFailed` when the mailbox of an idle agent cannot be
    read.
    """
    ended: Ended | None = None

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
            await membership.tell_idle(agent, None if ended is None else ended.reason)
        await meanwhile(agent, wait)
        if mail.has_work:
            added = mail.add(agent, ())
            agent.say("user", added.blocks, *added.records)
        elif mail.shutdown.requests:
            break
    if mail.shutdown.requests:
        return await _shut_down(agent, mail, membership, ended or Ended(reason="completed"))
    assert ended is not None, "an agent that was not asked to end goes on until a run ends badly"
    return ended


def has_work(agent: Agent) -> bool:
    """Whether the conversation ends with something that the model has not answered."""
    last = agent.conversation.prefix.last
    return last is not None and last.role == "user"


async def _run(agent: Agent, mail: DeliverMail, limits: Limits) -> Ended:
    """One run of the loop, interrupted when a deadline passes that came by mail."""
    failure: ReplyMalformed | OSError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_keep_deadline, agent, mail)
        try:
            ended = await run_loop(agent, limits)
        except (ReplyMalformed, OSError) as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:  # raised out here, where it is not put into a group
        raise failure
    return ended


async def _keep_deadline(agent: Agent, mail: DeliverMail) -> None:
    """Hear a request to end while the agent is busy, and interrupt it at the deadline."""
    while trio.current_time() < mail.shutdown.deadline:
        with trio.move_on_at(mail.shutdown.deadline):
            await _receive(agent, mail)
    agent.interrupt()


async def _receive(agent: Agent, mail: DeliverMail) -> None:
    try:
        await mail.receive()
    except MailboxFailed as exc:
        agent.tell(LayerFailed(layer="mail", reason=str(exc)))
        await trio.sleep_forever()  # the tool rounds try again; trying here would never pause


async def _shut_down(agent: Agent, mail: DeliverMail, membership: Membership, last: Ended) -> Ended:
    """Answer everybody who asked for it, and say that this is why it ends."""
    response = _response(last, is_late=trio.current_time() >= mail.shutdown.deadline)
    for request in mail.shutdown.requests.values():
        await membership.respond(agent, request, response)
    await mail.finish(agent)
    return attrs.evolve(last, reason="shutdown")


def _response(last: Ended, *, is_late: bool) -> ShutdownResponse:
    if last.reason == "cancelled":
        reason = "the deadline has passed, and what it was doing was interrupted" if is_late else "it was interrupted"
        return ShutdownResponse(accepted=False, reason=reason)
    words = {"completed": "it had nothing more to do", "shutdown": "it has wrapped up"}
    return ShutdownResponse(accepted=True, reason=words.get(last.reason, f"its run has ended: {last.reason}"))
