"""Progress summaries: a small model describes the agent's work twice a minute."""

import unicodedata
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

import attrs
import trio

from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ReplyMalformed
from coterie.agents.events.agent_events import ProgressSummarized
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.progress.digest import Digest, cut
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.client import ModelClient
from coterie.agents.loop.model.gateway_protocol import Gateway, Permit
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.request import ModelRequest
from coterie.errors import AgentError


@attrs.define(eq=False)
class GatewayBusy(AgentError):
    """A call was not admitted in time: the session cools down, or others come first."""

    patience: float

    def __str__(self) -> str:
        return f"the call was not admitted within {self.patience:g} seconds"


@attrs.frozen(kw_only=True)
class TimeoutGateway:
    """A `Gateway` that is another one for as long as nobody has to wait at it."""

    gate: Gateway
    patience: float
    """Seconds."""

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """As `Gateway.admit`; raises `GatewayBusy` when patience is at its end, with nothing left behind."""
        async with AsyncExitStack() as stack:
            with trio.move_on_after(self.patience) as waiting:
                permit = await stack.enter_async_context(self.gate.admit(intent))
            if waiting.cancelled_caught:
                raise GatewayBusy(self.patience)
            yield permit

    def cool_down(self, seconds: float) -> None:
        """As `Gateway.cool_down`, for all."""
        self.gate.cool_down(seconds)


LAYER = "progress"
PURPOSE = "summary"
MESSAGES = 3
"""That an agent must have before it is worth a word."""
MAX_TOKENS = 64
MAX_TOKENS_THINKING = 1_024
"""For models that think whatever one says."""
SHOWN = 60
"""Characters."""


@attrs.define(eq=False)
class ProgressSummarizer:
    """Watches one agent, beside its turns. Made by `build`."""

    _agent: Agent
    _client: ModelClient
    _model: Model
    _digest: Digest
    _every: float
    _begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    _failure: type[AgentError] | None = attrs.field(default=None, init=False)
    """Of the last look, if it was told of: one that goes on is told once."""

    @classmethod
    def build(cls, agent: Agent, client: ModelClient, model: Model, *, every: float, size: int | None = None) -> Self:
        """Summaries of *agent* by *model*, which is called with *client*, *every* so many seconds.

        The first follows the agent's next reply. *size* limits the digest, in tokens.
        """
        digest = Digest.begin(model, agent.conversation, inherited=agent.inherited, size=size)
        return cls(agent, client, model, digest, every)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Summarize in the background until the block ends; a running call is then cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run, name="progress summaries")
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    def on_reply(self, _agent: Agent, _reply: Reply) -> None:
        """The agent has had a reply, so that there is work to look at."""
        self._begun.set()

    async def run(self) -> None:
        """Look from the first reply on, with a pause after each look, until cancelled."""
        await self._begun.wait()
        while True:
            await trio.sleep(self._every)
            await self.summarize_once()

    async def summarize_once(self) -> None:
        """Say what the agent is at, if it is at work and something has happened; what goes wrong is an event.

        Cancellation leaves what was not answered to the next look.
        """
        self._digest.read(self._agent.conversation)
        if not (self._digest.has_new_entries and self._digest.messages >= MESSAGES and _is_busy(self._agent)):
            return
        try:
            await self._summarize()
        except GatewayBusy:
            return  # the next look is soon enough
        except (BudgetSpent, ModelError, ReplyMalformed, ControlLost) as exc:
            # Whoever listens on the control line ends the agent when that is lost.
            if type(exc) is not self._failure:
                self._agent.emit(LayerFailed(layer=LAYER, reason=str(exc)))
            self._failure = type(exc)
        else:
            self._failure = None

    async def _summarize(self) -> None:
        began, turn = trio.current_time(), self._agent.turn
        asked = self._digest.ask()
        reply = await self._ask(asked)
        text = clean(reply.text)
        if not text:
            return
        self._digest.answered(asked, text, reply.usage)
        self._agent.emit(
            ProgressSummarized(
                text=text,
                turn=turn,
                seconds=round(trio.current_time() - began, 6),
                cost_usd=format(self._model.cost(reply.usage), "f"),
            )
        )

    async def _ask(self, asked: Conversation) -> Reply:
        number = self._agent.request_counts[PURPOSE] + 1
        max_tokens = MAX_TOKENS_THINKING if self._model.thinking == "always" else MAX_TOKENS
        rendered = asked.render(max_tokens=max_tokens)
        reply = await self._client.ask(
            ModelRequest(
                body=rendered.chunks,
                model=self._model,
                max_tokens=max_tokens,
                prompt_tokens=self._digest.tokens,
                prefix=asked.prefix_hash,
                expected_read=self._digest.cached,
                purpose=PURPOSE,
                turn=number,
                api_version=asked.header.api_version,
                identity=self._agent.identity,
            )
        )
        # Counted when it is answered: what was left out, or failed, is asked again under its number.
        self._agent.request_counts[PURPOSE] = number
        asked.sent(rendered)
        return reply


def clean(text: str) -> str:
    """What the model answered, on one line that a list has room for, without what would move a terminal's cursor."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    visible = "".join(" " if unicodedata.category(char).startswith(("C", "Z")) else char for char in first)
    return cut(visible.strip(" \"'`*."), SHOWN)


def _is_busy(agent: Agent) -> bool:
    """Whether the model or its tools have something to do: who waits for mail has not."""
    last = agent.conversation.prefix.last
    return last is not None and (last.role == "user" or last.block_type == "tool_use")
