"""Slots such as `{{last_user_text}}` in the texts of a script, which are replaced by values of the request."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from coterie.scenarios.api_server.script.located_yaml import known_names_hint
from coterie.scenarios.api_server.script.request_facts import RequestFacts

OPEN = "{{"
CLOSE = "}}"
_LITERAL = f"(A literal {OPEN} is written {OPEN}open{CLOSE}.)"

_FACTS: dict[str, Callable[[RequestFacts], object]] = {
    "last_user_text": lambda facts: facts.last_user_text,
    "first_user_text": lambda facts: facts.first_user_text,
    "last_tool_result": lambda facts: facts.last_tool_result,
    "agent": lambda facts: facts.call.caller.agent,
    "incarnation": lambda facts: facts.call.caller.incarnation,
    "purpose": lambda facts: facts.call.caller.purpose,
    "turn": lambda facts: facts.turn,
    "model": lambda facts: facts.call.model.id,
    "open": lambda _: OPEN,
}
_LISTS: dict[str, Callable[[RequestFacts], tuple[str, ...]]] = {
    "tool_result": lambda facts: facts.tool_results,
    "tool_id": lambda facts: facts.tool_ids,
    "match": lambda facts: facts.match,
}
_NUMBERED = re.compile(r"(\w+)\.(0|[1-9][0-9]{0,5})", re.ASCII)
_EXPRESSION = re.compile(r"/(.+)/")
_NAMES = (*_FACTS, *(f"{name}.N" for name in _LISTS))


@attrs.define(eq=False)
class SlotEmpty(Exception):
    """The request has no value for a slot of the reply, for example no tool result."""

    slot: str

    def __str__(self) -> str:
        return f"the request has no value for {OPEN}{self.slot}{CLOSE}"


def check_template(text: str, *, groups: int | None = None) -> None:
    """Raise `ValueError` if a slot of *text* is not closed, or if its name, expression or number is invalid.

    *groups* is the number of groups in the regular expression of the reply's rule; None without one, and then `match`
    is not allowed.
    """
    for slot, _ in _slots(text):
        if (expression := _EXPRESSION.fullmatch(slot)) is not None:
            try:
                re.compile(expression[1])
            except re.error as exc:
                raise ValueError(f"the regular expression /{expression[1]}/ of a slot is invalid: {exc}") from exc
            continue
        numbered = _NUMBERED.fullmatch(slot)
        if slot not in _FACTS and not (numbered and numbered[1] in _LISTS):
            hint = known_names_hint(slot, _NAMES)
            raise ValueError(f"unknown slot {OPEN}{slot[:40]}{CLOSE}; {hint} {_LITERAL}")
        if numbered and numbered[1] == "match":
            if groups is None:
                raise ValueError(f"{OPEN}{slot}{CLOSE} needs a `when` with a regular expression, such as /fix (.+)/")
            if int(numbered[2]) > groups:
                raise ValueError(f"{OPEN}{slot}{CLOSE} is wrong: the regular expression has only {groups} groups")


def fill(value: Any, facts: RequestFacts) -> Any:
    """Return a copy of the JSON *value* with the slots in all its strings replaced; the keys of objects are unchanged.

    Raises `SlotEmpty` if the request has no value for a slot. The slots must have passed `check_template`.
    """
    if isinstance(value, str):
        return _fill_text(value, facts)
    if isinstance(value, dict):
        return {key: fill(item, facts) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, facts) for item in value]
    return value


def _fill_text(text: str, facts: RequestFacts) -> str:
    if OPEN not in text:
        return text
    pieces: list[str] = []
    end = 0
    for slot, (start, stop) in _slots(text):
        pieces += (text[end:start], _fact(slot, facts))
        end = stop
    return "".join((*pieces, text[end:]))


def _slots(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each slot name in *text*, with start and end including braces. Raises `ValueError` without `}}`."""
    stop = 0
    while (start := text.find(OPEN, stop)) >= 0:
        end = text.find(CLOSE, start)
        if end < 0:
            raise ValueError(f"the slot {text[start : start + 20]!r} is not closed; add {CLOSE}. {_LITERAL}")
        stop = end + len(CLOSE)
        yield text[start + len(OPEN) : end].strip(), (start, stop)


def _fact(slot: str, facts: RequestFacts) -> str:
    if slot in _FACTS:
        value = _FACTS[slot](facts)
    elif expression := _EXPRESSION.fullmatch(slot):
        value = facts.find_last(re.compile(expression[1]))
    else:
        name, _, number = slot.partition(".")
        values = _LISTS[name](facts)
        value = values[int(number)] if int(number) < len(values) else None
    if value is None:
        raise SlotEmpty(slot)
    return str(value)
