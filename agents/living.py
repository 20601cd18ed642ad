"""A long-lived agent: it works, waits for mail, and works again."""

from collections.abc import Callable

from coterie.agents.agent import Agent
from coterie.agents.layers.mail import DeliverMail
from coterie.agents.loop import run_loop
from coterie.agents.outcome import Ended, Limits
from coterie.mailbox.contract import MemberState


async def live(
    agent: Agent, mail: DeliverMail, limits: Limits, tell_state: Callable[[MemberState], None] = lambda _: None
) -> Ended:
    """Let *agent* work on what it has, and on whatever comes by *mail*, until a run ends otherwise than completed.

    *limits* are those of one run. Every change between running and idle is told. Cancellation stops it at once; mail
    that is not in the transcript by then is delivered to its next start. Raises as `run_loop` does.
    """
    while True:
        if _has_work(agent):
            tell_state("running")
            ended = await run_loop(agent, limits)
            if ended.reason != "completed":
                return ended
        tell_state("idle")
        await mail.wait_for_work()
        added = mail.add(agent, ())
        agent.say("user", added.blocks, *added.records)


def _has_work(agent: Agent) -> bool:
    last = agent.conversation.prefix.last
    return last is not None and last.role == "user"
