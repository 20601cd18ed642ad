"""Selection of the stored memories that fit a query, by a small model in a conversation apart from the agent's."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import islice

import attrs
import msgspec

from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import header_without_thinking
from coterie.agents.loop.conversation.token_estimate import estimate_block
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.client import ModelClient
from coterie.agents.loop.model.request import Identity, ModelRequest
from coterie.agents.prompts import render
from coterie.memory.recall.selection import SCHEMA, parse_selection
from coterie.memory.recall.store_scan import ScannedMemory

PURPOSE = "recall"
MAX_TOKENS = 256
QUERY = 4_000
"""Maximum number of characters of the query that the request to the small model contains."""
TOOLS = 10
"""Maximum number of tools, those that the agent used last, that the request to the small model names."""
BLOCKS = 200
"""Number of blocks at the end of the agent's conversation that are searched for recent tool calls."""


@attrs.frozen(kw_only=True)
class RecallCaller:
    """Origin of a request that selects memories: an agent, or a command of the user without an agent."""

    client: ModelClient
    identity: Identity
    turn: int = 1
    """Number of this request, from 1, counted over the requests of the agent or command that select memories."""
    tools: Sequence[str] = ()
    """Names of the tools that the agent used last, latest first; empty for a command of the user."""

    @classmethod
    def of(cls, agent: Agent) -> "RecallCaller":
        """Create the caller for *agent*'s next request, which is counted in its `request_counts`."""
        agent.request_counts[PURPOSE] += 1
        turn, prefix = agent.request_counts[PURPOSE], agent.conversation.prefix
        last = (prefix[index] for index in range(len(prefix) - 1, max(-1, len(prefix) - 1 - BLOCKS), -1))
        names = (msgspec.json.decode(segment.data)["name"] for segment in last if segment.block_type == "tool_use")
        tools = list(islice(dict.fromkeys(names), TOOLS))
        return cls(client=agent.client, identity=agent.identity, turn=turn, tools=tools)


async def choose_memories(
    caller: RecallCaller, model: Model, query: str, offered: Mapping[str, ScannedMemory], most: int
) -> tuple[list[str] | None, Decimal]:
    """Let *model* choose at most *most* of the *offered* memories (by name) for *query*; return names and cost.

    The names are None if the answer could not be parsed. Raises as `ModelClient.ask` does.
    """
    lines = [attrs.evolve(scanned, path=name).line for name, scanned in offered.items()]
    # The query comes last, so that the next request reads the list from the cache.
    choice = render("recall_choice", most=str(most), memories="\n".join(lines))
    output_format = msgspec.json.encode({"type": "json_schema", "schema": SCHEMA})
    header = attrs.evolve(header_without_thinking(model), output_format=output_format)
    conversation = Conversation.begin(header, system=[text_block(choice)])
    said = render("recall_query", query=query[:QUERY], tools=", ".join(caller.tools) or "none")
    conversation.append("user", [text_block(said)])
    reply = await caller.client.ask(
        ModelRequest(
            body=conversation.render(max_tokens=MAX_TOKENS, helper=True).chunks,
            model=model,
            max_tokens=MAX_TOKENS,
            prompt_tokens=sum(estimate_block(segment.data) for segment in conversation.segments),
            prefix=conversation.prefix_hash,
            purpose=PURPOSE,
            turn=caller.turn,
            api_version=conversation.header.api_version,
            identity=caller.identity,
        )
    )
    return parse_selection(reply.text, offered, most), model.cost(reply.usage)
