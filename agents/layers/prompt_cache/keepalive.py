"""Refresh calls for an agent's prompt cache while it waits for other agents, and choice of the cache's time to live."""

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
"""Seconds before the expiry of a cache entry at which it is refreshed, because the call may wait for admission."""
LEAST_LOSS = Decimal("0.01")
"""Minimum loss in dollars that is worth a refresh: a prefix that costs less to write again is not refreshed."""


@attrs.frozen(kw_only=True)
class KeepalivePlan:
    """Costs of refreshing a cached prefix and of letting it expire, to decide on refreshes in a wait of any length."""

    refresh: Decimal
    """Cost of one refresh call in dollars."""
    loss: Decimal
    """Additional cost of the next call in dollars if the cache entry has expired and must be written again."""
    interval: float
    """Seconds after the last use of the prefix at which a refresh is due."""

    def is_worth_another(self, spent: Decimal) -> bool:
        """True if another refresh call is worth its cost, after refreshes for *spent* dollars in the same wait.

        Refreshing stops when the calls have cost as much as the loss. So the total is always less than twice the
        smallest possible cost, whenever the wait ends.
        """
        return self.loss >= LEAST_LOSS and spent + self.refresh <= self.loss


def keepalive_plan(model: Model, *, prefix_tokens: int, ttl: Ttl, has_thinking: bool = True) -> KeepalivePlan:
    """Return what it costs to refresh a cached prefix, and to lose it; the loss is 0 if it is too short to cache."""
    written = Usage(write_5m=prefix_tokens) if ttl == "5m" else Usage(write_1h=prefix_tokens)
    is_cacheable = prefix_tokens >= model.cache_minimum
    read = model.cost(Usage(read=prefix_tokens) if is_cacheable else Usage(input=prefix_tokens))
    write = model.cost(written if is_cacheable else Usage(input=prefix_tokens))
    refresh = read + model.price(prefix_tokens).of(Usage(output=1 if has_thinking else 0))
    return KeepalivePlan(refresh=refresh, loss=write - read, interval=safe_lifetime(ttl))


def choose_next_ttl(
    model: Model, *, prefix_tokens: int, new_tokens: int, wait: float, has_thinking: bool = True
) -> Ttl:
    """Return the cheaper time to live for *new_tokens* after a cached prefix, if the agent then waits *wait* seconds.

    Compares the price of writing these tokens, and of refreshes during the wait or a new write of the prefix. The entry
    at the end of the new tokens includes the prefix. At equal cost, the shorter time wins.
    """
    lives: tuple[Ttl, ...] = ("5m", "1h")
    price = model.price(prefix_tokens)
    written = {"5m": price.of(Usage(write_5m=new_tokens)), "1h": price.of(Usage(write_1h=new_tokens))}

    def dollars(ttl: Ttl) -> Decimal:
        upkeep = keepalive_plan(model, prefix_tokens=prefix_tokens, ttl=ttl, has_thinking=has_thinking)
        return written[ttl] + min(refreshes_needed(ttl, wait) * upkeep.refresh, upkeep.loss)

    return min(lives, key=dollars)


def safe_lifetime(ttl: Ttl) -> float:
    """Return the seconds after its last use for which a cache entry with *ttl* surely exists."""
    return CACHE_LIFETIMES[ttl] - MARGIN


def refreshes_needed(ttl: Ttl, wait: float) -> int:
    """Return the number of refresh calls that keep a cache entry with *ttl* alive for *wait* seconds."""
    return max(0, math.ceil(wait / safe_lifetime(ttl)) - 1)


async def refresh_prefix(agent: Agent) -> Usage | None:
    """Resend *agent*'s last answered request with at most one token of output, to refresh its cache entries.

    Changes only `replied_at` of the agent. Returns the usage; None, without a call, if no request was answered, or if
    thinking has a fixed budget, which would cost too much. Raises as `ModelClient.ask` does.
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
    """True if *agent*'s model may think before it answers; then the API rejects a call with `max_tokens` 0."""
    kind = _thinking(agent)
    if agent.model.thinking == "always" or kind is None:
        return agent.model.thinking != "extended"
    return kind != "disabled"


def _thinking(agent: Agent) -> str | None:
    parameter = agent.conversation.header.thinking
    return None if parameter is None else msgspec.json.decode(parameter).get("type")


CLOCK_CHECK_SECONDS = 1.0
"""Maximum number of seconds that `sleep_until` sleeps before it checks the clock again."""
END_TIMEOUT = 3.0
"""Maximum seconds to wait for the end of a cancelled refresh call, whose connection must be closed."""

SleepUntil = Callable[[Clock, float], Awaitable[None]]
"""Function that sleeps until the given clock reaches the given time, such as `sleep_until`."""


async def sleep_until(clock: Clock, at: float) -> None:
    """Sleep until *clock* reaches the time *at*; a change of the clock has effect within `CLOCK_CHECK_SECONDS`.

    One long sleep is not enough: trio's clock ignores changes, and stops while the machine is suspended.
    """
    while (left := at - clock.now()) > 0:  # noqa: ASYNC110 - no event signals a changed clock
        await trio.sleep(min(left, CLOCK_CHECK_SECONDS))


@attrs.define(eq=False)
class _Wait:
    """A period in which the agent waits for other agents, and in which its cache entries are refreshed."""

    began: float = 0.0
    """Time on the session's clock at which the wait began."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Event that is set when refreshing has stopped, so that no refresh call of this wait is running."""


@attrs.define(eq=False)
class CacheKeepalive:
    """Pipeline step that refreshes an agent's cached prefix during waits, while that is cheaper than a new write.

    The length of a wait is unknown, so refreshing stops when it has cost as much as the loss of the entry. The length
    of the last wait decides the time to live of the entries that the next calls write.
    """

    _agent: Agent
    _sleep_until: SleepUntil = sleep_until
    _used_at: float | None = None
    """Time of the last request or refresh call, which used all cache entries of the agent; None before the first."""
    _written: int = 0
    """Tokens that calls of the agent have written to the prompt cache since the last wait."""
    _last: tuple[float, int] | None = None
    """Seconds of the last wait, and tokens written to the cache in the work before it; None before the first wait."""
    _blocks: int = 0
    _wait: _Wait = attrs.field(factory=_Wait, init=False)
    _called: trio.Event = attrs.field(factory=trio.Event, init=False)

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Context manager for a wait of the agent: its cached prefix is refreshed until the block ends.

        Overlapping blocks are one wait. The agent must make no model call during the block. The end of the last block
        cancels a running refresh call, whose cost is recorded like that of any cancelled call.
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
        """Record how many tokens *reply* wrote to the cache, and when its request, which used the entries, was sent."""
        self._used_at = agent.clock.now() - reply.duration
        self._written += reply.usage.write_5m + reply.usage.write_1h

    async def before_call(self, agent: Agent) -> None:
        """Set the time to live of the next cache entries: the cheaper one if the next wait is as long as the last.

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
        """Return a context manager: until its block ends, a background task makes the refresh calls during waits."""
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
        """Make refresh calls during one wait while they are worth their cost and the cache entry has not expired."""
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
        """Make one refresh call and return its usage; None if it was not sent, failed, or took longer than `MARGIN`.

        The call must end before the cache entry expires. A long cool-down (pause after a rate limit) prevents that.
        """
        with trio.move_on_after(MARGIN):
            try:
                return await refresh_prefix(self._agent)
            except CALL_FAILURES as exc:
                self._agent.report_failure(PURPOSE, exc)
                return None
        self._agent.report_failure(PURPOSE, "refreshing the prompt cache did not finish before the cache entry expired")
        return None
