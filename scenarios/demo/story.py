"""The demo's story: a lead asks and reads over several turns, then two forks go on from what it has read."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import attrs
import trio

from coterie.agents.conversation import Conversation, KeyHeader, text_block
from coterie.agents.gate import LocalGate
from coterie.agents.model.client import ModelClient, open_model_client
from coterie.agents.model.reply import Reply
from coterie.agents.model.request import Identity, ModelRequest
from coterie.agents.models import Model, known_models
from coterie.agents.tokens import JSON_BYTES
from coterie.orchestrator.embedded import RunningServer, open_server
from coterie.scenarios.demo.tools import definitions, run_tool

HERE = Path(__file__).parent
MODEL = "claude-opus-5-5"
MAX_TOKENS = 8_000
QUESTION = "How do the tests of this code base let hours pass without waiting for them?"
DIRECTIVES = {
    "reviewer-1": "Say in one sentence why another process never sees half a number in the clock's file.",
    "reviewer-2": "Say in one sentence what reading a shared clock costs.",
}
PLACEHOLDER = "Answered in the conversation you were forked from."


@attrs.frozen(kw_only=True)
class Turn:
    """One finished model call of the story."""

    agent: str
    turn: int
    reply: Reply
    cost: Decimal


Tell = Callable[[Turn], None]


@attrs.define(eq=False)
class Story:
    """One telling: a running server, a client of it, and who is told of each turn."""

    server: RunningServer
    gate: LocalGate
    _client: ModelClient
    _tell: Tell
    _model: Model

    async def ask_lead(self) -> Conversation:
        """Put the question and work until it is answered; returns the lead's conversation."""
        header = KeyHeader(model=self._model.id)
        system = text_block((HERE / "system.md").read_text())
        lead = Conversation.begin(header, tools=definitions(), system=[system])
        lead.append("user", [text_block(QUESTION)])
        turn = 1
        while calls := (await self._ask("lead", turn, lead)).tool_calls:
            lead.append("user", [run_tool(call) for call in calls])
            turn += 1
        return lead

    async def ask_forks(self, lead: Conversation) -> None:
        """Fork one reviewer per directive from *lead* and let them answer at the same time."""
        async with trio.open_nursery() as nursery:
            for name, directive in DIRECTIVES.items():
                nursery.start_soon(self._ask, name, 1, lead.fork_with(PLACEHOLDER, directive))

    async def _ask(self, agent: str, turn: int, conversation: Conversation) -> Reply:
        rendered = conversation.render(max_tokens=MAX_TOKENS)
        request = ModelRequest(
            body=rendered.chunks,
            model=self._model,
            max_tokens=MAX_TOKENS,
            prompt_tokens=rendered.size // JSON_BYTES,
            prefix=conversation.prefix_hash,
            turn=turn,
            identity=Identity(agent=agent),
        )
        reply = await self._client.ask(request)
        conversation.sent(rendered)
        conversation.append("assistant", [block.data for block in reply.blocks])
        self._tell(Turn(agent=agent, turn=turn, reply=reply, cost=self._model.cost(reply.usage)))
        return reply


@asynccontextmanager
async def open_story(tell: Tell) -> AsyncIterator[Story]:
    """Start the embedded server in its own process and a client of it; both end with the block."""
    gate = LocalGate()
    async with (
        open_server(HERE / "script.yaml") as server,
        open_model_client(gate, base_url=server.url, api_key="embedded") as client,
    ):
        yield Story(server, gate, client, tell, known_models().get(MODEL))
