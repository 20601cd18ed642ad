"""Rate limits of the embedded server: token buckets for each API key and model."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime

import attrs
from attrs.validators import ge, optional

from coterie.scenarios.api_server.request.errors import ApiError

ACCOUNTS = 4096
"""Maximum number of stored (API key, model) pairs. Beyond it, pairs with full buckets are removed first, then the least
recently used.
"""

_MINUTE = 60.0

Header = tuple[str, str]


@attrs.frozen(kw_only=True)
class RateLimits:
    """Limits per minute for each API key and model. None means no limit; a value below 1 raises `ValueError`."""

    requests: int | None = attrs.field(default=None, validator=optional(ge(1)))
    input_tokens: int | None = attrs.field(default=None, validator=optional(ge(1)))
    output_tokens: int | None = attrs.field(default=None, validator=optional(ge(1)))


@attrs.define(eq=False)
class _Bucket:
    """Token bucket of one limit. Its level may become negative, because tokens are subtracted after the answer."""

    limit: int
    level: float
    at: float

    def refill(self, now: float) -> None:
        # After the clock is set back, refilling continues from the new time.
        self.level = min(self.limit, self.level + max(0.0, now - self.at) * self.limit / _MINUTE)
        self.at = now

    def seconds_until(self, level: float) -> float:
        return max(0.0, (level - self.level) * _MINUTE / self.limit)


_Account = dict[str, _Bucket]


@attrs.define(eq=False)
class RateLimiter:
    """Enforces the rate limits for each API key and model. Callers pass the time in seconds since the epoch."""

    limits: RateLimits
    _accounts: dict[tuple[str, str], _Account] = attrs.field(init=False, factory=dict)

    def admit(self, key: str, model_id: str, now: float) -> None:
        """Count one request. Raises `ApiError` (429) with the waiting time, without counting, if a limit is used up.

        The tokens of the request are not known yet, so it is admitted if at least one token of each kind is available.
        """
        account = self._open(key, model_id, now)
        waits = {name: bucket.seconds_until(1) for name, bucket in account.items() if bucket.level < 1}
        if waits:
            raise self._refusal(account, model_id, waits, now)
        if requests := account.get("requests"):
            requests.level -= 1

    def settle(self, key: str, model_id: str, *, input_tokens: int, output_tokens: int, now: float) -> None:
        """Subtract the tokens of an admitted request from its limits, after the answer is known.

        *input_tokens* are uncached input and cache writes, without cache reads. A level may become negative; further
        requests are then refused until the bucket is refilled.
        """
        account = self._open(key, model_id, now)
        for name, used in (("input-tokens", input_tokens), ("output-tokens", output_tokens)):
            if bucket := account.get(name):
                bucket.level -= used

    def headers(self, key: str, model_id: str, now: float) -> tuple[Header, ...]:
        """Return the `anthropic-ratelimit-*` headers of an answer, only for the limits that are set."""
        account = self._accounts.get((key, model_id)) or self._full_account(now)
        return _headers(account, now)

    def _open(self, key: str, model_id: str, now: float) -> _Account:
        account = self._accounts.pop((key, model_id), None)
        if account is None:
            account = self._full_account(now)
            if len(self._accounts) >= ACCOUNTS:
                self._forget(now)
        for bucket in account.values():
            bucket.refill(now)
        # Reinserted at the end, to keep the order of last use.
        self._accounts[key, model_id] = account
        return account

    def _full_account(self, now: float) -> _Account:
        limits = {name: limit for name, limit in attrs.asdict(self.limits).items() if limit is not None}
        return {name.replace("_", "-"): _Bucket(limit=limit, level=limit, at=now) for name, limit in limits.items()}

    def _forget(self, now: float) -> None:
        for account in self._accounts.values():
            for bucket in account.values():
                bucket.refill(now)
        kept = [
            pair
            for pair, account in self._accounts.items()
            if any(bucket.level < bucket.limit for bucket in account.values())
        ]
        # Drop at least half, so that the cost of this scan is spread over many new pairs.
        self._accounts = {pair: self._accounts[pair] for pair in kept[-(ACCOUNTS // 2) :]}

    def _refusal(self, account: _Account, model_id: str, waits: dict[str, float], now: float) -> ApiError:
        name = max(waits, key=lambda name: waits[name])
        # One more millisecond, so that rounding does not send a client back too early.
        seconds = math.ceil(waits[name] + 0.001)
        limit = f"{account[name].limit:,} {name.replace('-', ' ')} per minute"
        message = f"The limit of {limit} for {model_id} is used up; try again in {seconds} s."
        headers = (("retry-after", str(seconds)), *_headers(account, now))
        return ApiError(429, "rate_limit_error", message, headers)


def _headers(account: _Account, now: float) -> tuple[Header, ...]:
    for bucket in account.values():
        bucket.refill(now)
    named = dict(account)
    tokens = [bucket for name, bucket in account.items() if name != "requests"]
    if tokens:
        named["tokens"] = min(tokens, key=lambda bucket: (bucket.level, bucket.limit))
    return tuple(header for name, bucket in named.items() for header in _bucket_headers(name, bucket, now))


def _bucket_headers(name: str, bucket: _Bucket, now: float) -> Iterator[Header]:
    remaining = max(0, math.floor(bucket.level))
    if name != "requests":
        remaining = min(bucket.limit, round(remaining, -3))
    full = math.ceil(now + bucket.seconds_until(bucket.limit))
    yield f"anthropic-ratelimit-{name}-limit", str(bucket.limit)
    yield f"anthropic-ratelimit-{name}-remaining", str(remaining)
    yield f"anthropic-ratelimit-{name}-reset", datetime.fromtimestamp(full, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
