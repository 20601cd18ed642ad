"""Progress summaries: a small model periodically describes the agent's current work."""

import unicodedata
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import attrs
import trio

from coterie.agents.events.agent_events import ProgressSummarized
from coterie.agents.layers.background_task import run_in_background
from coterie.agents.layers.progress.digest import Digest, cut
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.client import CALL_FAILURES, ModelClient
from coterie.agents.loop.model.gateway_protocol import Gateway, Permit
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.request import ModelRequest
from coterie.errors import AgentError


@attrs.frozen(kw_only=True)
class TimeoutGateway:
    """`Gateway` that limits the wait for admission by another gateway."""

    gate: Gateway
    timeout: float
    """Longest wait in seconds."""

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """As `Gateway.admit`; raises `trio.TooSlowError` after the timeout, and then holds no slot."""
        async with AsyncExitStack() as stack:
            with trio.fail_after(self.timeout):
                permit = await stack.enter_async_context(self.gate.admit(intent))
            yield permit

    def cool_down(self, seconds: float) -> None:
        """As `Gateway.cool_down`, for all calls of the other gateway."""
        self.gate.cool_down(seconds)


LAYER = "progress"
PURPOSE = "summary"
MESSAGES = 3
"""Messages that an agent must have before its first summary."""
MAX_TOKENS = 64
MAX_TOKENS_THINKING = 1_024
"""`max_tokens` for models whose thinking cannot be disabled."""
SHOWN = 60
"""Greatest number of characters of a summary."""


@attrs.define(eq=False)
class ProgressSummarizer:
    """Background task that summarises the work of one agent; the first summary follows the agent's next reply."""

    _agent: Agent
    _client: ModelClient
    _model: Model
    _every: float = attrs.field(kw_only=True)
    """Seconds between two summaries."""
    _size: int | None = attrs.field(default=None, kw_only=True)
    """Limit of the digest in tokens; None for the limit of the model."""
    _digest: Digest = attrs.field(init=False)
    _begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    _failure: type[AgentError] | None = attrs.field(default=None, init=False)
    """Type of the last error; repeated errors of one type emit only one event."""

    def __attrs_post_init__(self) -> None:
        agent = self._agent
        self._digest = Digest.begin(self._model, agent.conversation, inherited=agent.inherited, size=self._size)

    def open(self) -> AbstractAsyncContextManager[None]:
        """Wait for the first reply, then summarise periodically until the block ends, which cancels a running call."""
        return run_in_background(self._run, "progress summaries")

    def on_reply(self, _agent: Agent, _reply: Reply) -> None:
        """Start the periodic summaries after the agent's first reply."""
        self._begun.set()

    async def _run(self) -> None:
        await self._begun.wait()
        while True:
            await trio.sleep(self._every)
            await self.summarize_once()

    async def summarize_once(self) -> None:
        """Summarise the agent's work if it is busy and has new entries; a failure becomes an event.

        Cancellation leaves the new entries to the next summary.
        """
        self._digest.read(self._agent.conversation)
        last = self._agent.conversation.prefix.last
        # An agent that waits for mail is not busy.
        is_busy = self._agent.has_work or (last is not None and last.block_type == "tool_use")
        if not (self._digest.has_new_entries and self._digest.messages >= MESSAGES and is_busy):
            return
        try:
            await self._summarize()
        except trio.TooSlowError:
            return  # not admitted in time; the next summary includes these entries
        except CALL_FAILURES as exc:
            if type(exc) is not self._failure:
                self._agent.report_failure(LAYER, exc)
            self._failure = type(exc)
        else:
            self._failure = None

    async def _summarize(self) -> None:
        began, turn, model = trio.current_time(), self._agent.turn, self._model
        asked, number = self._digest.ask(), self._agent.request_counts[PURPOSE] + 1
        max_tokens = MAX_TOKENS_THINKING if model.thinking == "always" else MAX_TOKENS
        rendered = asked.render(max_tokens=max_tokens)
        request = ModelRequest(
            body=rendered.chunks,
            model=model,
            max_tokens=max_tokens,
            prompt_tokens=self._digest.tokens,
            prefix=asked.prefix_hash,
            expected_read=self._digest.cached,
            purpose=PURPOSE,
            turn=number,
            api_version=asked.header.api_version,
            identity=self._agent.identity,
        )
        reply = await self._client.ask(request)
        # Counted after the reply: a failed request is retried under the same number.
        self._agent.request_counts[PURPOSE] = number
        asked.sent(rendered)
        text = clean(reply.text)
        if not text:
            return
        self._digest.answered(asked, text, reply.usage)
        self._agent.emit(
            ProgressSummarized(
                text=text,
                turn=turn,
                seconds=round(trio.current_time() - began, 6),
                cost_usd=format(model.cost(reply.usage), "f"),
            )
        )


def clean(text: str) -> str:
    """Reduce the model's answer to one short line without terminal control characters."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    visible = "".join(" " if unicodedata.category(char).startswith(("C", "Z")) else char for char in first)
    return cut(visible.strip(" \"'`*."), SHOWN)
