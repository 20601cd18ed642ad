"""Keeping a prefix in the cache while its agent waits: a call that reads it and says nothing."""

import msgspec

from coterie.agents.agent import Agent
from coterie.agents.model.request import ModelRequest
from coterie.agents.usage import Usage

PURPOSE = "refresh"


async def refresh_prefix(agent: Agent) -> Usage | None:
    """Send *agent*'s last answered request again, for next to no output, so that its cache entries live on.

    Nothing of the agent changes but the time at which its cache was last used. Returns what was used; None, and
    nothing is sent, when there is nothing to refresh, or when a fixed budget for thinking would have to be paid.
    Raises as `ModelClient.ask` does.
    """
    conversation = agent.conversation.answered()
    if conversation.marks.previous is None or _thinking(agent) == "enabled":
        return None
    max_tokens = 1 if has_thinking(agent) else 0
    began = agent.clock.now()
    reply = await agent.client.ask(
        ModelRequest(
            body=conversation.render(max_tokens=max_tokens, stream=max_tokens > 0, ttl=agent.ttl).chunks,
            model=agent.model,
            max_tokens=max_tokens,
            prompt_tokens=agent.meter.tokens(agent.conversation),
            prefix=conversation.prefix_hash,
            expected_read=agent.meter.cached(agent.conversation),
            ttl=agent.ttl.longest,
            purpose=PURPOSE,
            turn=agent.turn,
            api_version=conversation.header.api_version,
            betas=conversation.header.betas,
            identity=agent.identity,
        )
    )
    agent.replied_at = began
    return reply.usage


def has_thinking(agent: Agent) -> bool:
    """Whether the model may think before it speaks: then the API refuses a call that asks for no output."""
    kind = _thinking(agent)
    if agent.model.thinking == "always" or kind is None:
        return agent.model.thinking != "extended"
    return kind != "disabled"


def _thinking(agent: Agent) -> str | None:
    parameter = agent.conversation.header.thinking
    return None if parameter is None else msgspec.json.decode(parameter).get("type")
