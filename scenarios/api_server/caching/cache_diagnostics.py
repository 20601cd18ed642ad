"""Cache diagnostics, a field of responses: the reason why the cached prompt of an earlier reply was not reused."""

from typing import Any

import attrs

from coterie.scenarios.api_server.caching.prompt_digest import PromptDigest

SHORT = 8
"""Bytes that are stored of each prefix hash: enough to compare two prompts, but too few for a cache key."""


@attrs.frozen(kw_only=True)
class _Remembered:
    owner: bytes
    model: tuple[str, str]
    tools: bytes
    system: bytes
    settings: bytes
    positions: bytes
    """Shortened prefix hashes of all blocks of the prompt, concatenated."""

    @property
    def size(self) -> int:
        return len(self.positions) // SHORT


@attrs.define(eq=False)
class CacheDiagnoser:
    """Compares the prompt of a request with that of an earlier reply, and reports the first difference.

    It stores prompt hashes for recent replies; the least recently used are removed first.
    """

    messages_limit: int = 10_000
    positions_limit: int = 4_000_000
    """Maximum number of stored prefix hashes over all prompts; long conversations displace old replies sooner."""
    _messages: dict[str, _Remembered] = attrs.field(factory=dict, init=False)
    _positions: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._messages)

    def remember(self, message_id: str, model_id: str, prompt: PromptDigest) -> None:
        """Store hashes of the prompt that the reply *message_id* answered, for comparison with later prompts."""
        self._forget(message_id)
        self._messages[message_id] = remembered = _remembered(model_id, prompt)
        self._positions += remembered.size
        while len(self._messages) > self.messages_limit or self._positions > self.positions_limit:
            self._forget(next(iter(self._messages)))

    def diagnose(self, previous_id: str | None, model_id: str, prompt: PromptDigest) -> dict[str, Any] | None:
        """Return the `diagnostics` object of a reply: the reason why the prompt of *previous_id* was not reused.

        None if that prompt is a prefix of *prompt*, or if *previous_id* is None; an unknown id is a reason too.
        `cache_missed_input_tokens`, if present, is the number of tokens after the shared prefix.
        """
        if previous_id is None:
            return None
        earlier, current = self._messages.get(previous_id), _remembered(model_id, prompt)
        if earlier is None or earlier.owner != current.owner:
            return _reason("previous_message_not_found")
        self._messages[previous_id] = self._messages.pop(previous_id)
        shared = _shared(earlier.positions, current.positions)
        if shared == earlier.size:
            return None
        missed = prompt.total - prompt.tokens_at(shared - 1)
        return _reason(_difference(earlier, current), missed)

    def _forget(self, message_id: str) -> None:
        remembered = self._messages.pop(message_id, None)
        if remembered is not None:
            self._positions -= remembered.size


def _remembered(model_id: str, prompt: PromptDigest) -> _Remembered:
    return _Remembered(
        owner=prompt.owner,
        model=(model_id, prompt.speed),
        tools=prompt.tools_digest,
        system=prompt.system_digest,
        settings=prompt.settings,
        positions=b"".join([digest[:SHORT] for digest in prompt.digests]),
    )


def _shared(one: bytes, other: bytes) -> int:
    """Return the number of equal leading hashes of two prompts.

    Bisection works because the hashes differ at every position after the first difference.
    """
    low, high = 0, min(len(one), len(other)) // SHORT
    while low < high:
        middle = (low + high) // 2
        at = slice(middle * SHORT, (middle + 1) * SHORT)
        if one[at] == other[at]:
            low = middle + 1
        else:
            high = middle
    return low


def _difference(earlier: _Remembered, current: _Remembered) -> str:
    if earlier.model != current.model:
        return "model_changed"
    if earlier.tools != current.tools:
        return "tools_changed"
    if earlier.system != current.system:
        return "system_changed"
    if earlier.settings != current.settings:
        # The API has no reason for a changed tool choice, thinking or output format.
        return "unavailable"
    return "messages_changed"


def _reason(kind: str, missed: int | None = None) -> dict[str, Any]:
    reason: dict[str, Any] = {"type": kind}
    if missed is not None and kind != "unavailable":
        reason["cache_missed_input_tokens"] = missed
    return {"cache_miss_reason": reason}
