"""Progress summaries: a small model periodically describes in a few words what the agent is doing, for the user."""

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
    """`Gateway` (admission of model calls) that passes calls to another gateway and limits the wait for admission."""

    gate: Gateway
    timeout: float
    """Maximum number of seconds that a call waits for admission by `gate`."""

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """Admit the call by `gate` as `Gateway.admit` does; raises `trio.TooSlowError` if that takes over `timeout`."""
        async with AsyncExitStack() as stack:
            with trio.fail_after(self.timeout):
                permit = await stack.enter_async_context(self.gate.admit(intent))
            yield permit

    def cool_down(self, seconds: float) -> None:
        """Let `gate` start no call of any agent for *seconds*, because the API rejected a call for the rate or load."""
        self.gate.cool_down(seconds)


LAYER = "progress"
PURPOSE = "summary"
MESSAGES = 3
"""Minimum number of messages in the agent's conversation before its work is summarised for the first time."""
MAX_TOKENS = 64
MAX_TOKENS_THINKING = 1_024
"""`max_tokens` of requests to models whose thinking cannot be disabled, because thinking also uses tokens."""
SHOWN = 60
"""Maximum number of characters of a progress summary; a longer one is cut."""


@attrs.define(eq=False)
class ProgressSummarizer:
    """Background task that regularly lets a small model summarise the work of one agent, after its first reply."""

    _agent: Agent
    _client: ModelClient
    _model: Model
    _every: float = attrs.field(kw_only=True)
    """Number of seconds between two progress summaries."""
    _size: int | None = attrs.field(default=None, kw_only=True)
    """Maximum tokens of a request to the small model; None for the largest in the model's cheapest price tier."""
    _digest: Digest = attrs.field(init=False)
    _begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    _failure: type[AgentError] | None = attrs.field(default=None, init=False)
    """Type of the error of the last summary, None after a success; the same type again emits no event."""

    def __attrs_post_init__(self) -> None:
        agent = self._agent
        self._digest = Digest.begin(self._model, agent.conversation, inherited=agent.inherited, size=self._size)

    def open(self) -> AbstractAsyncContextManager[None]:
        """Context manager: summaries run in the background until its block ends; a running call is cancelled."""
        return run_in_background(self._run, "progress summaries")

    def on_reply(self, _agent: Agent, _reply: Reply) -> None:
        """Start the periodic summaries after the agent's first reply; later replies have no effect."""
        self._begun.set()

    async def _run(self) -> None:
        await self._begun.wait()
        while True:
            await trio.sleep(self._every)
            await self.summarize_once()

    async def summarize_once(self) -> None:
        """Let the small model summarise the agent's work if it is busy and did something new; failures become events.

        Does nothing before the agent has `MESSAGES` messages. Cancellation leaves the new work to the next summary.
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
    """Return the first line of *text*, the small model's answer, cut, without quotes and control characters."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    visible = "".join(" " if unicodedata.category(char).startswith(("C", "Z")) else char for char in first)
    return cut(visible.strip(" \"'`*."), SHOWN)
