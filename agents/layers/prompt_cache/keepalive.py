"""Keepalive of a cached prefix while its agent waits for others."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal

import attrs
import msgspec
import trio

from coterie.agents.errors import BudgetSpent, ControlLost, ModelError, ReplyMalformed
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.prompt_cache.cache_ttl import MARGIN, KeepalivePlan, choose_next_ttl, keepalive_plan
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.cache_markers import FIVE_MINUTES, CacheTtls
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.request import ModelRequest
from coterie.agents.loop.model.usage import Ttl, Usage
from coterie.clock import Clock

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


CLOCK_CHECK_SECONDS = 1.0
"""Seconds after which a sleeper looks again what time it is."""
END_TIMEOUT = 3.0
"""Seconds that a refresh may take to end when the wait is over; a little more than its connection may take to close."""

TTL_MARKERS: dict[Ttl, CacheTtls] = {
    "5m": FIVE_MINUTES,
    # The end cannot live longer than what stands before it: a marker of 1h must not come after one of 5m.
    "1h": CacheTtls(system="1h", context="1h", previous="1h", last="1h"),
}

SleepUntil = Callable[[Clock, float], Awaitable[None]]
"""Returns when it is that time on that clock."""


async def sleep_until(clock: Clock, at: float) -> None:
    """Return when *clock* says *at*; when it is moved, within `CLOCK_CHECK_SECONDS` seconds.

    One long sleep would not do: trio's clock hears nothing of a move, and stands still while the machine is suspended.
    """
    while (left := at - clock.now()) > 0:  # noqa: ASYNC110 - nothing tells of a move; a look is cheap, and seldom
        await trio.sleep(min(left, CLOCK_CHECK_SECONDS))


@attrs.define(eq=False)
class _Wait:
    """One time in which the agent has nothing to do but to wait."""

    began: float = 0.0
    """On the session's clock."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Set when nothing is done for it any more."""


@attrs.frozen(kw_only=True)
class _Round:
    """A wait that is over, and what was written to the cache before it: so the next may be."""

    seconds: float
    tokens: int


@attrs.define(eq=False)
class CacheKeepalive:
    """Refreshes the cached prefix of a waiting agent while that costs less than to write it again.

    How long a wait will be is not known, so it goes on until the refreshes have cost what the loss would; by the waits
    there were, it chooses how long what is written next shall live.
    """

    _agent: Agent
    _sleep_until: SleepUntil = sleep_until
    _used_at: float | None = None
    """When the agent's last request, which wrote or read all of the prefix, was sent."""
    _written: int = 0
    """Tokens written to the cache since the last wait."""
    _last: _Round | None = None
    _blocks: int = 0
    _wait: _Wait = attrs.field(factory=_Wait, init=False)
    _called: trio.Event = attrs.field(factory=trio.Event, init=False)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Keep the prefix warm until the block ends; blocks that overlap are one wait.

        The agent makes no call meanwhile. When its last block is left, no refresh is under way: one that is in flight
        is cancelled, and settled as any cancelled call.
        """
        self._blocks += 1
        if self._blocks == 1:
            self._wait = _Wait(began=self._agent.clock.now())
            self._called.set()
        try:
            yield
        finally:
            self._blocks -= 1
            if self._blocks == 0:
                await self._end(self._wait)

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Take note of what the reply says was written, and when it was asked for: the lives of entries begin there."""
        self._used_at = agent.clock.now() - reply.duration
        self._written += reply.usage.write_5m + reply.usage.write_1h

    async def before_call(self, agent: Agent) -> None:
        """Give what the next request writes the life that is cheapest if the next wait is like the last.

        The last of the steps before a call: until here, the agent's lives are those of what is in the cache.
        """
        if self._last is not None:
            ttl = choose_next_ttl(
                agent.model,
                prefix_tokens=agent.meter.cached(agent.conversation) or 0,
                new_tokens=self._last.tokens,
                wait=self._last.seconds,
                has_thinking=has_thinking(agent),
            )
            agent.ttl = TTL_MARKERS[ttl]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve the waits of the agent in the background until the block ends."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run, name="cache keepalive")
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    async def run(self) -> None:
        """Serve one wait after another, until cancelled."""
        try:
            while True:
                await self._called.wait()
                self._called, wait = trio.Event(), self._wait
                with wait.scope:
                    await self._keep()
                wait.is_over.set()
        finally:
            self._wait.is_over.set()

    async def _end(self, wait: _Wait) -> None:
        wait.scope.cancel()
        with trio.move_on_after(END_TIMEOUT, shield=True):
            await wait.is_over.wait()
        self._last = _Round(seconds=self._agent.clock.now() - wait.began, tokens=self._written)
        self._written = 0

    async def _keep(self) -> None:
        """Refresh as often as it pays; what is gone already is left alone."""
        upkeep, spent = self._plan(), Decimal(0)
        while self._used_at is not None and upkeep.is_worth_another(spent):
            await self._sleep_until(self._agent.clock, self._used_at + upkeep.interval)
            now = self._agent.clock.now()
            usage = await self._refresh() if now < self._used_at + upkeep.interval + MARGIN else None
            if usage is None:
                break
            self._used_at = now
            spent += self._agent.model.cost(usage)

    def _plan(self) -> KeepalivePlan:
        agent = self._agent
        tokens = agent.meter.cached(agent.conversation) or 0
        return keepalive_plan(agent.model, prefix_tokens=tokens, ttl=agent.ttl.last, has_thinking=has_thinking(agent))

    async def _refresh(self) -> Usage | None:
        """One refresh call; None, and mostly an event, when there was none.

        It has to come through before the prefix is gone, which it does not while the session cools down for longer.
        """
        with trio.move_on_after(MARGIN):
            try:
                return await refresh_prefix(self._agent)
            except (BudgetSpent, ModelError, ReplyMalformed, ControlLost) as exc:
                # Whoever listens on the control line ends the agent when that is lost.
                self._agent.emit(LayerFailed(layer=PURPOSE, reason=str(exc)))
                return None
        self._agent.emit(LayerFailed(layer=PURPOSE, reason="the call did not come through in time"))
        return None
