"""Mail loop of a teammate: the agent works, waits for mail, and works again until it is asked to shut down."""

import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Literal

import attrs
import trio

from coterie.agents.errors import ControlLost, ReplyMalformed
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.loop import run_loop
from coterie.agents.loop.run_result import EndReason, RunEnded, RunLimits
from coterie.agents.root_link.spawn_request import Spawner
from coterie.agents.runtime.setup.agent_mail import AgentMail
from coterie.mailbox.envelope import Envelope, MessageId, Sender
from coterie.mailbox.errors import MailboxError, MailboxFailed
from coterie.mailbox.message_bodies import Idle, ShutdownResponse
from coterie.mailbox.router import OutgoingMessage, Router


@attrs.frozen(kw_only=True)
class TeamMembership:
    """Sender of an agent's messages to its team: idle notices, and responses to shutdown requests."""

    router: Router
    sender: Sender
    lead: str | None = None
    """Name of the agent that gets the idle notices; None to send no notices."""

    async def notify_idle(self, agent: Agent, outcome: EndReason | None) -> None:
        """Send the lead a notice that the agent is idle, with the end reason *outcome* of its last run, if any.

        If the notice cannot be stored in the mailbox of the lead, emit an event with the error.
        """
        if self.lead is not None:
            await self._send(agent, self.lead, Idle(outcome=outcome))

    async def respond(self, agent: Agent, request: Envelope, response: ShutdownResponse) -> None:
        """Send *response* to the sender of the shutdown request *request*, and wait until it is stored.

        An error becomes an event. The user and the root process get no response; they see the end of the run instead.
        """
        if request.sender.kind not in ("human", "system"):
            await self._send(agent, request.sender.name, response, request.id)

    async def _send(
        self, agent: Agent, to: str, body: Idle | ShutdownResponse, in_reply_to: MessageId | None = None
    ) -> None:
        message = OutgoingMessage(to=to, body=body.to_body(), kind=body.kind, in_reply_to=in_reply_to)
        try:
            await self.router.send(self.sender, message)
        except MailboxError as exc:
            agent.report_failure("mail", exc)


IdleWait = Callable[[Agent, Callable[[], Awaitable[None]]], Awaitable[None]]
"""Function that waits for mail by calling its second argument, and meanwhile serves requests, such as a compaction.

It may return before mail arrives, if a request that it served has put messages into the conversation.
"""


async def run_mail_loop(
    agent: Agent,
    mail: Messaging,
    limits: RunLimits,
    membership: TeamMembership,
    report_state: Callable[[Literal["running", "idle"]], None] = lambda _: None,
    waiting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    idle_wait: IdleWait | None = None,
) -> RunEnded:
    """Run *agent*, and again when *mail* brings work, until it must shut down or a run ends other than "completed".

    *limits* apply to each run. *report_state* gets every change between running and idle, and the lead gets an idle
    notice. Each wait for mail runs inside a *waiting* block and is passed to *idle_wait*. After a shutdown request, the
    agent finishes its tool round and has one more turn to wrap up, or none if it has nothing to do. At the deadline it
    is interrupted. In both cases the reason of the result is "shutdown", and the response is stored before the return.

    Cancellation stops the agent immediately and answers no request; mail that is not in the transcript by then is
    delivered to the next incarnation. Raises as `run_loop` and *idle_wait* do, and `MailboxFailed` if the mailbox of an
    idle agent cannot be read.
    """
    ended: RunEnded | None = None

    async def wait() -> None:
        async with waiting():
            await mail.wait_for_work()

    while True:
        if agent.has_work:
            report_state("running")
            ended = await _run(agent, mail, limits)
            if ended.reason != "completed" or mail.shutdown.is_known:
                break
        if not mail.shutdown.requests:
            report_state("idle")
            await membership.notify_idle(agent, None if ended is None else ended.reason)
        await (wait() if idle_wait is None else idle_wait(agent, wait))
        if mail.has_work:
            mail.deliver(agent)
        elif mail.shutdown.requests:
            break
    if mail.shutdown.requests:
        return await _shut_down(agent, mail, membership, ended or RunEnded(reason="completed"))
    assert ended is not None, "an agent that was not asked to end goes on until a run ends badly"
    return ended


async def _run(agent: Agent, mail: Messaging, limits: RunLimits) -> RunEnded:
    """Run the turn loop of *agent* once; interrupt it when the deadline of a shutdown request in *mail* passes."""
    failure: ReplyMalformed | OSError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_interrupt_at_deadline, agent, mail)
        try:
            ended = await run_loop(agent, limits)
        except (ReplyMalformed, OSError) as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:  # Raised outside of the nursery, so that it is not wrapped in a group.
        raise failure
    return ended


async def _interrupt_at_deadline(agent: Agent, mail: Messaging) -> None:
    """Receive mail while *agent* runs, and interrupt the agent when the deadline of a shutdown request passes."""
    while trio.current_time() < mail.shutdown.deadline:
        with trio.move_on_at(mail.shutdown.deadline):
            try:
                await mail.receive()
            except MailboxFailed as exc:
                agent.report_failure("mail", exc)
                await trio.sleep_forever()  # The tool rounds retry; retrying here would be a busy loop.
    agent.interrupt()


async def _shut_down(agent: Agent, mail: Messaging, membership: TeamMembership, last: RunEnded) -> RunEnded:
    """Respond to shutdown requests, acknowledge the mail, and return the result *last* with the reason "shutdown"."""
    reasons = {"completed": "it had nothing more to do", "shutdown": "it has wrapped up"}
    reason = reasons.get(last.reason, f"its run has ended: {last.reason}")
    if last.reason == "cancelled":
        is_late = trio.current_time() >= mail.shutdown.deadline
        reason = "the deadline has passed and its turn was interrupted" if is_late else "it was interrupted"
    response = ShutdownResponse(accepted=last.reason != "cancelled", reason=reason)
    for request in mail.shutdown.requests.values():
        await membership.respond(agent, request, response)
    await mail.acknowledge_all(agent)
    return attrs.evolve(last, reason="shutdown")


async def wait_for_mail_or_idle_team(mail: AgentMail, spawner: Spawner) -> None:
    """Wait for mail that needs a turn or asks for shutdown, or until all agents below this one are idle, without mail.

    In the last case, all mail that was sent before is stored. Raises `MailboxFailed` if the mailbox cannot be read.
    """
    failure: MailboxFailed | None = None
    async with trio.open_nursery() as nursery:

        async def watch_for_idle() -> None:
            with contextlib.suppress(ControlLost):  # The task that receives from the root reports the lost connection.
                await _wait_until_idle(mail, spawner)
                nursery.cancel_scope.cancel()

        nursery.start_soon(watch_for_idle)
        try:
            await mail.messaging.wait_for_work()
        except MailboxFailed as exc:
            failure = exc
        nursery.cancel_scope.cancel()
    if failure is not None:  # Raised outside of the nursery, so that it is not wrapped in a group.
        raise failure


async def _wait_until_idle(mail: AgentMail, spawner: Spawner) -> None:
    """Wait until all agents below this one are idle, and no message queued in this process is about to wake one.

    The root does not see the queue. But an agent reports that it is running before its mail counts as read. So the
    root's answer is right if, when it was requested, the queued mail had been read, and none was sent since.
    """
    while True:
        is_read, sent = mail.is_delivered_in_process, mail.sent_in_process
        await spawner.wait_until_idle()
        if is_read and sent == mail.sent_in_process:
            return
        await trio.lowlevel.checkpoint()
