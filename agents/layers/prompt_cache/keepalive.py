"""Keepalive of a cached prefix while its agent waits for other agents, and the choice of its time to live."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from decimal import Decimal

import attrs
import msgspec
import trio

from coterie.agents.layers.background_task import run_in_background
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.conversation.cache_markers import CACHE_LIFETIMES, CacheTtls
from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.client import CALL_FAILURES
from coterie.agents.loop.model.reply import Reply
from coterie.agents.loop.model.usage import Ttl, Usage
from coterie.clock import Clock

PURPOSE = "refresh"
MARGIN = 20.0
"""Safety margin in seconds before the expiry of an entry, because a call may wait for admission."""
LEAST_LOSS = Decimal("0.01")
"""Dollars; a prefix whose loss costs less is not refreshed."""


@attrs.frozen(kw_only=True)
class KeepalivePlan:
    """Cost of keeping or losing a cached prefix whose next use is at an unknown time."""

    refresh: Decimal
    """Dollars of one refresh call."""
    loss: Decimal
    """Extra dollars of the next use if the entry has expired."""
    interval: float
    """Seconds from the last use of the prefix to a refresh."""

    def is_worth_another(self, spent: Decimal) -> bool:
        """Return True if another refresh pays off after *spent* dollars since the last use.

        Refreshing stops when the calls have cost as much as the loss. So the total is always less than twice the
        smallest possible cost, whenever the wait ends.
        """
        return self.loss >= LEAST_LOSS and spent + self.refresh <= self.loss


def keepalive_plan(model: Model, *, prefix_tokens: int, ttl: Ttl, has_thinking: bool = True) -> KeepalivePlan:
    """Compute the costs for a prefix that was written with *ttl*; a prefix too short to be cached has no loss."""
    written = Usage(write_5m=prefix_tokens) if ttl == "5m" else Usage(write_1h=prefix_tokens)
    is_cacheable = prefix_tokens >= model.cache_minimum
    read = model.cost(Usage(read=prefix_tokens) if is_cacheable else Usage(input=prefix_tokens))
    write = model.cost(written if is_cacheable else Usage(input=prefix_tokens))
    refresh = read + model.price(prefix_tokens).of(Usage(output=1 if has_thinking else 0))
    return KeepalivePlan(refresh=refresh, loss=write - read, interval=safe_lifetime(ttl))


def choose_next_ttl(
    model: Model, *, prefix_tokens: int, new_tokens: int, wait: float, has_thinking: bool = True
) -> Ttl:
    """Choose the cheaper time to live for *new_tokens* written behind a prefix, if a wait of *wait* seconds follows.

    Only the new tokens are paid for: a cache entry at their end includes everything before, for its own time to live.
    At equal cost, the shorter one wins.
    """
    lives: tuple[Ttl, ...] = ("5m", "1h")
    price = model.price(prefix_tokens)
    written = {"5m": price.of(Usage(write_5m=new_tokens)), "1h": price.of(Usage(write_1h=new_tokens))}

    def dollars(ttl: Ttl) -> Decimal:
        upkeep = keepalive_plan(model, prefix_tokens=prefix_tokens, ttl=ttl, has_thinking=has_thinking)
        return written[ttl] + min(refreshes_needed(ttl, wait) * upkeep.refresh, upkeep.loss)

    return min(lives, key=dollars)


def safe_lifetime(ttl: Ttl) -> float:
    """Seconds without use that a cache entry surely survives."""
    return CACHE_LIFETIMES[ttl] - MARGIN


def refreshes_needed(ttl: Ttl, wait: float) -> int:
    """Number of refresh calls that keep an entry alive for *wait* seconds."""
    return max(0, math.ceil(wait / safe_lifetime(ttl)) - 1)


async def refresh_prefix(agent: Agent) -> Usage | None:
    """Resend *agent*'s last answered request with at most one token of output, to refresh its cache entries.

    Changes nothing of the agent but `replied_at`. Returns the usage; None, without a call, if there is nothing to
    refresh, or if a fixed thinking budget would have to be paid. Raises as `ModelClient.ask` does.
    """
    conversation = agent.conversation.answered()
    if conversation.marks.previous is None or _thinking(agent) == "enabled":
        return None
    max_tokens = 1 if has_thinking(agent) else 0
    tokens, cached = agent.meter.tokens(agent.conversation), agent.meter.cached(agent.conversation)
    rendered = conversation.render(max_tokens=max_tokens, stream=max_tokens > 0, ttl=agent.ttl)
    began = agent.clock.now()
    request = agent.request(conversation, rendered, prompt_tokens=tokens, expected_read=cached, purpose=PURPOSE)
    reply = await agent.client.ask(request)
    agent.replied_at = began
    return reply.usage


def has_thinking(agent: Agent) -> bool:
    """Return True if the model may think before it answers; the API then rejects a call with `max_tokens` 0."""
    kind = _thinking(agent)
    if agent.model.thinking == "always" or kind is None:
        return agent.model.thinking != "extended"
    return kind != "disabled"


def _thinking(agent: Agent) -> str | None:
    parameter = agent.conversation.header.thinking
    return None if parameter is None else msgspec.json.decode(parameter).get("type")


CLOCK_CHECK_SECONDS = 1.0
"""Seconds between two checks of the clock during a sleep."""
END_TIMEOUT = 3.0
"""Seconds to wait for a cancelled refresh; slightly more than the client needs to close its connection."""

SleepUntil = Callable[[Clock, float], Awaitable[None]]
"""Function that sleeps until a time on a clock."""


async def sleep_until(clock: Clock, at: float) -> None:
    """Sleep until *clock* reaches *at*; notice a changed clock within `CLOCK_CHECK_SECONDS` seconds.

    One long sleep is not enough: trio's clock ignores changes, and stops while the machine is suspended.
    """
    while (left := at - clock.now()) > 0:  # noqa: ASYNC110 - no event signals a changed clock
        await trio.sleep(min(left, CLOCK_CHECK_SECONDS))


@attrs.define(eq=False)
class _Wait:
    """One wait of the agent for other agents."""

    began: float = 0.0
    """Start time on the session's clock."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Set when no refresh of this wait is running."""


@attrs.define(eq=False)
class CacheKeepalive:
    """Pipeline step that refreshes the cached prefix of a waiting agent while that is cheaper than a new write.

    The length of a wait is unknown, so refreshing stops when it has cost as much as the loss of the entry. The last
    wait decides the time to live of the next writes.
    """

    _agent: Agent
    _sleep_until: SleepUntil = sleep_until
    _used_at: float | None = None
    """Time at which the agent's last request was sent, which wrote or read the whole prefix."""
    _written: int = 0
    """Tokens written to the cache since the last wait."""
    _last: tuple[float, int] | None = None
    """Seconds of the last wait, and the tokens written to the cache before it; used to predict the next one."""
    _blocks: int = 0
    _wait: _Wait = attrs.field(factory=_Wait, init=False)
    _called: trio.Event = attrs.field(factory=trio.Event, init=False)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Refresh the cached prefix until the block ends; overlapping blocks are one wait.

        The agent must make no call during the block. The end of the last block cancels a running refresh, which is
        settled like any cancelled call.
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
                self._wait.scope.cancel()
                with trio.move_on_after(END_TIMEOUT, shield=True):
                    await self._wait.is_over.wait()
                self._last = self._agent.clock.now() - self._wait.began, self._written
                self._written = 0

    def on_reply(self, agent: Agent, reply: Reply) -> None:
        """Note the written tokens and the time of the request, at which the cache entries' time to live begins."""
        self._used_at = agent.clock.now() - reply.duration
        self._written += reply.usage.write_5m + reply.usage.write_1h

    async def before_call(self, agent: Agent) -> None:
        """Set the time to live of the next write to the cheapest one for a wait like the last one.

        This step must be the last before a call, because earlier steps need the times to live of the existing entries.
        """
        if self._last is not None:
            seconds, tokens = self._last
            ttl = choose_next_ttl(
                agent.model,
                prefix_tokens=agent.meter.cached(agent.conversation) or 0,
                new_tokens=tokens,
                wait=seconds,
                has_thinking=has_thinking(agent),
            )
            # All four, because a marker of 1h must not follow one of 5m.
            agent.ttl = CacheTtls(system=ttl, context=ttl, previous=ttl, last=ttl)

    def open(self) -> AbstractAsyncContextManager[None]:
        """Serve the waits of the agent in the background until the block ends."""
        return run_in_background(self._run, "cache keepalive")

    async def _run(self) -> None:
        try:
            while True:
                await self._called.wait()
                self._called, wait = trio.Event(), self._wait
                with wait.scope:
                    await self._keep()
                wait.is_over.set()
        finally:
            self._wait.is_over.set()

    async def _keep(self) -> None:
        """Refresh as often as it pays off; stop if the entry has expired already."""
        agent, spent = self._agent, Decimal(0)
        tokens, thinks = agent.meter.cached(agent.conversation) or 0, has_thinking(agent)
        upkeep = keepalive_plan(agent.model, prefix_tokens=tokens, ttl=agent.ttl.last, has_thinking=thinks)
        while self._used_at is not None and upkeep.is_worth_another(spent):
            await self._sleep_until(agent.clock, self._used_at + upkeep.interval)
            now = agent.clock.now()
            usage = await self._refresh() if now < self._used_at + upkeep.interval + MARGIN else None
            if usage is None:
                break
            self._used_at = now
            spent += agent.model.cost(usage)

    async def _refresh(self) -> Usage | None:
        """Make one refresh call; None if it was not sent or failed.

        The call must be admitted before the entry expires, which a long cool-down of the session prevents.
        """
        with trio.move_on_after(MARGIN):
            try:
                return await refresh_prefix(self._agent)
            except CALL_FAILURES as exc:
                self._agent.report_failure(PURPOSE, exc)
                return None
        self._agent.report_failure(PURPOSE, "the call did not finish before the cache entry expired")
        return None
