"""Faults that tests inject into the server's answers, such as errors and dropped connections: parsing and selection."""

import math
import random
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import attrs

from coterie.scenarios.api_server.request.api_request import ApiCaller
from coterie.scenarios.api_server.request.errors import invalid_request
from coterie.scenarios.api_server.script.located_yaml import known_names_hint

HttpFaultKind = Literal["rate_limit", "overloaded", "error", "disconnect", "cut", "error_event", "stall", "slow"]

FAULT_LIMIT = 1_000
SLOW_SECONDS = 0.1
LONGEST = 1e9

ERROR_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Error types of the API and their status codes."""

_SHARED_KEYS = ("kind", "count", "agent", "purpose", "turn", "model", "probability")
_OWN_KEYS: dict[str, tuple[str, ...]] = {
    "rate_limit": ("retry_after",),
    "overloaded": ("retry_after",),
    "error": ("status", "error", "retry_after"),
    "disconnect": (),
    "cut": ("after",),
    "error_event": ("after", "error"),
    "stall": ("after", "seconds"),
    "slow": ("seconds",),
}


@attrs.frozen(kw_only=True)
class HttpFault:
    """A fault in the server's answers, such as an error status or a dropped connection, and the affected requests."""

    kind: HttpFaultKind
    count: int | None = 1
    """Number of requests that the fault affects; None for all."""
    agent: str | None = None
    purpose: str | None = None
    turn: int | None = None
    model: str | None = None
    """The fault affects only requests whose model id contains this text; None for any model."""
    probability: float = 1.0
    retry_after: float | None = None
    """Value in seconds of the `retry-after` header of an injected error; None for no header."""
    after: int = 3
    """Number of stream events sent before a fault of the kind `cut`, `error_event` or `stall`."""
    seconds: float | None = None
    """`slow`: pause before each event of a stream. `stall`: length of the pause; None until the client disconnects."""
    status: int | None = None
    """HTTP status code that a fault of the kind `error` sends."""
    error: str | None = None
    """Error type of the API that the fault sends; None for the usual error type of the kind."""

    @classmethod
    def from_mapping(cls, value: object) -> "HttpFault":
        """Parse a fault of a script or a control request: only the name of a kind, or a mapping with a kind.

        Raises `ValueError` with the problem, and for an unknown name with a hint to the known names.
        """
        fields = {"kind": value} if isinstance(value, str) else value
        if not isinstance(fields, Mapping):
            known = known_names_hint("", get_args(HttpFaultKind))
            raise ValueError(  # noqa: TRY004 - one error type for all invalid input
                f"a fault must be the name of a kind, or a mapping with a kind; {known}"
            )
        kind = _kind(fields.get("kind"))
        _check_keys(fields, kind)
        checked: dict[str, Any] = {key: _CHECKS[key](key, item) for key, item in fields.items()}
        return cls(**{**_implied(checked), **checked})

    def matches(self, caller: ApiCaller, model: str | None = None) -> bool:
        """True if the fault applies to this request, regardless of its count and probability."""
        return (
            self.agent in (None, caller.agent)
            and self.purpose in (None, caller.purpose)
            and self.turn in (None, caller.turn)
            and (self.model is None or self.model in (model or ""))
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return the fault as JSON data, which `from_mapping` parses to an equal fault."""
        keys = (*_SHARED_KEYS, *_OWN_KEYS[self.kind])
        fields = {key: value for key, value in attrs.asdict(self).items() if key in keys and value is not None}
        return {**fields, "count": "always" if self.count is None else self.count}


@attrs.define(eq=False)
class _Rule:
    fault: HttpFault
    remaining: int | None
    random: random.Random

    def take(self, caller: ApiCaller, model: str | None) -> bool:
        if self.remaining == 0 or not self.fault.matches(caller, model):
            return False
        if self.random.random() >= self.fault.probability:
            return False
        if self.remaining is not None:
            self.remaining -= 1
        return True


@attrs.define(eq=False)
class HttpFaultPlan:
    """The active faults of a server, in the order of their addition; equal seeds and requests give equal faults."""

    seed: int = 0
    _rules: dict[int, _Rule] = attrs.field(factory=dict, init=False)
    _added: int = attrs.field(default=0, init=False)

    def add(self, fault: HttpFault) -> int:
        """Append *fault* and return its id. Raises `ApiError` if there are too many faults."""
        if len(self._rules) >= FAULT_LIMIT:
            raise invalid_request(f"there are {FAULT_LIMIT:,} faults already; clear them first")
        self._added += 1
        source = random.Random(f"{self.seed}/{self._added}")  # noqa: S311 - repeatable, not secret
        self._rules[self._added] = _Rule(fault, fault.count, source)
        return self._added

    def next_fault(self, caller: ApiCaller, model: str | None = None) -> HttpFault | None:
        """Return the first matching fault that passes its `probability` draw, and decrement its count; else None."""
        return next((rule.fault for rule in self._rules.values() if rule.take(caller, model)), None)

    def clear(self) -> None:
        """Remove all faults; their ids are not reused."""
        self._rules.clear()

    def list(self) -> tuple[dict[str, Any], ...]:
        """Return all faults as JSON data, each with its id and remaining count (null: no limit)."""
        return tuple(
            {"id": number, **rule.fault.to_mapping(), "remaining": rule.remaining}
            for number, rule in self._rules.items()
        )


def _implied(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return defaults that depend on the kind of a fault: `seconds` for `slow`; `status` and `error` for `error`."""
    if fields["kind"] == "slow":
        return {"seconds": SLOW_SECONDS}
    if fields["kind"] != "error":
        return {}
    status = fields.get("status") or ERROR_STATUS[fields.get("error", "api_error")]
    error = next((error for error, usual in ERROR_STATUS.items() if usual == status), "api_error")
    return {"status": status, "error": error}


def _kind(value: object) -> HttpFaultKind:
    for kind in get_args(HttpFaultKind):
        if value == kind:
            found: HttpFaultKind = kind
            return found
    if value is None:
        raise ValueError(f"a fault has no `kind`; {known_names_hint('', get_args(HttpFaultKind))}")
    raise ValueError(f"unknown fault {value!r}; {known_names_hint(str(value), get_args(HttpFaultKind))}")


def _check_keys(fields: Mapping[Any, object], kind: HttpFaultKind) -> None:
    for key in fields:
        if key in _SHARED_KEYS or key in _OWN_KEYS[kind]:
            continue
        if key in _CHECKS:
            kinds = sorted(kind for kind, keys in _OWN_KEYS.items() if key in keys)
            raise ValueError(f"the fault {kind} cannot have {key!r}, a key of {', '.join(kinds)}; remove it")
        raise ValueError(f"a fault has no key {key!r}; {known_names_hint(str(key), (*_SHARED_KEYS, *_OWN_KEYS[kind]))}")


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"the fault's {key} must be text, not {value!r}")
    return value


def _number(key: str, value: object) -> float:
    allowed, least, most, expected = _NUMBERS[key]
    if not isinstance(value, allowed) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"the fault's {key} must be {expected}, not {value!r}")
    return value if allowed is int else float(value)


def _count(key: str, value: object) -> float | None:
    if isinstance(value, str) and value != "always":
        raise ValueError(f"the fault's count must be a whole number from 1, or always, not {value!r}")
    return None if value == "always" else _number(key, value)


def _error(key: str, value: object) -> str:
    if _text(key, value) not in ERROR_STATUS:
        raise ValueError(f"unknown error type {value!r}; {known_names_hint(_text(key, value), ERROR_STATUS)}")
    return _text(key, value)


_NUMBERS: Mapping[str, tuple[Any, float, float, str]] = {
    **dict.fromkeys(("count", "turn"), (int, 1, math.inf, "a whole number from 1")),
    "after": (int, 0, math.inf, "a whole number from 0"),
    "status": (int, 400, 599, "from 400 to 599"),
    "probability": (int | float, 0, 1, "a number from 0 to 1"),
    **dict.fromkeys(("retry_after", "seconds"), (int | float, 0, LONGEST, "a number of seconds")),
}
"""Type, minimum, maximum and description for errors of each numeric key of a fault."""
_CHECKS: Mapping[str, Callable[[str, object], Any]] = {
    "kind": lambda _, value: _kind(value),
    "count": _count,
    **dict.fromkeys(("agent", "purpose", "model"), _text),
    **dict.fromkeys(("turn", "after", "status", "probability", "retry_after", "seconds"), _number),
    "error": _error,
}
