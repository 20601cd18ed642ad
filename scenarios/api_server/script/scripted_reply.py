"""A scripted reply, and the conditions of a rule."""

import re
import warnings
from collections.abc import Mapping

import attrs

from coterie.scenarios.api_server.request.api_request import Block
from coterie.scenarios.api_server.script.http_faults import HttpFault
from coterie.scenarios.api_server.script.located_yaml import shorten
from coterie.scenarios.api_server.script.request_facts import RequestFacts

_EXPRESSION = re.compile(r"/(.+)/([a-z]*)", re.DOTALL)
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_SHOWN = 80
"""Characters of a request's text that an explanation repeats."""


@attrs.frozen(kw_only=True)
class TextPattern:
    """What a text must hold: a part of it, or a `/regular expression/` with any of the flags i, m and s."""

    text: str
    """As the script writes it."""
    expression: re.Pattern[str] | None = None

    @classmethod
    def parse(cls, text: str) -> "TextPattern":
        """Raises `ValueError` for a regular expression that cannot be used."""
        written = _EXPRESSION.fullmatch(text)
        if written is None:
            return cls(text=text)
        flags = re.NOFLAG
        for letter in written[2]:
            if letter not in _FLAGS:
                raise ValueError(f"unknown flag {letter!r} of the regular expression; expected i, m or s")
            flags |= _FLAGS[letter]
        return cls(text=text, expression=_compiled(written[1], flags))

    def find(self, text: str) -> tuple[str, ...] | None:
        """The whole match and its groups; nothing but the part itself without an expression; None if absent."""
        if self.expression is None:
            return (self.text,) if self.text in text else None
        found = self.expression.search(text)
        return found and (found[0], *found.groups(default=""))

    def __str__(self) -> str:
        return f"containing {self.text!r}" if self.expression is None else f"matching {self.text}"


def _compiled(expression: str, flags: re.RegexFlag) -> re.Pattern[str]:
    try:
        # A warning is about an expression whose meaning will change: no test should rest on it.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(expression, flags)
    except (re.error, OverflowError, RecursionError, Warning) as exc:
        raise ValueError(f"bad regular expression /{expression}/: {exc}") from exc


@attrs.frozen(kw_only=True)
class ReplyConditions:
    """The conditions of a rule; None asks for nothing."""

    last_user_text: TextPattern | None = None
    last_tool_result: TextPattern | None = None
    model: TextPattern | None = None
    tool: str | None = None
    """A tool of this name is offered."""
    turn: int | None = None
    heard: tuple[TextPattern, ...] = ()
    """Each is somewhere in what the user and the tools have said so far."""
    unheard: tuple[TextPattern, ...] = ()
    """None of them is."""

    @property
    def groups(self) -> int | None:
        """How many groups `found` has behind the whole match; None without a regular expression."""
        return next((p.expression.groups for p in self._patterns() if p.expression), None)

    def found(self, facts: RequestFacts) -> tuple[str, ...]:
        """The groups of the first regular expression: of the user's text, the tool result, the model, or the past."""
        seen = (facts.last_user_text, facts.last_tool_result, facts.model)
        wanted = (self.last_user_text, self.last_tool_result, self.model)
        for pattern, text in zip(wanted, seen, strict=True):
            if pattern and pattern.expression:
                return pattern.find(text or "") or ()
        expressions = (pattern for pattern in self.heard if pattern.expression)
        return next(map(facts.find_in_input, expressions), None) or ()

    def failures(self, facts: RequestFacts) -> tuple[str, ...]:
        """What each condition that does not hold asks for, and what the request has; empty when all hold."""
        checks = (
            _text_failure("last_user_text", self.last_user_text, facts.last_user_text),
            _text_failure("last_tool_result", self.last_tool_result, facts.last_tool_result),
            _text_failure("model", self.model, facts.model),
            self._tool_failure(facts),
            self._turn_failure(facts),
            *(f"somebody to have said something {p}" for p in self.heard if facts.find_in_input(p) is None),
            *(f"nobody to have said something {p}" for p in self.unheard if facts.find_in_input(p) is not None),
        )
        return tuple(failure for failure in checks if failure)

    def _patterns(self) -> tuple[TextPattern, ...]:
        return tuple(p for p in (self.last_user_text, self.last_tool_result, self.model, *self.heard) if p)

    def _tool_failure(self, facts: RequestFacts) -> str | None:
        if self.tool is None or self.tool in facts.tools:
            return None
        return f"tool {self.tool!r}, the request offers {', '.join(sorted(facts.tools)) or 'no tools'}"

    def _turn_failure(self, facts: RequestFacts) -> str | None:
        return None if self.turn in (None, facts.turn) else f"turn {self.turn}, this is turn {facts.turn}"


def _text_failure(name: str, pattern: TextPattern | None, text: str | None) -> str | None:
    if pattern is None or (text is not None and pattern.find(text)):
        return None
    words = name.replace("_", " ")
    seen = f"has no {words}" if text is None else f"has the {words} {shorten(text, _SHOWN)}"
    return f"{name} {pattern}, the request {seen}"


@attrs.frozen(kw_only=True)
class ScriptedReply:
    """What the model says in one turn, and how it is delivered."""

    name: str
    """Where it stands in the script: `default[2]` is the second reply of `default`."""
    line: int
    content: tuple[Block, ...]
    """Blocks of the API with slots still in their strings; a tool call has an id only if the script gives one."""
    stop: str = "end_turn"
    refusal: Mapping[str, str | None] | None = None
    """`category` and `explanation` of the stop reason `refusal`."""
    delay: float = 0.0
    """Seconds before the reply begins."""
    token_delay: float = 0.0
    """Seconds between stream events."""
    asked: tuple[str, ...] = ()
    """Signals raised once it is asked for, before it waits for any."""
    until: tuple[str, ...] = ()
    """Signals it waits for."""
    signals: tuple[str, ...] = ()
    """Signals raised once it has been sent whole."""
    fault: HttpFault | None = None
    """Strikes the first times that a turn is asked for."""
    when: ReplyConditions | None = None
    """With conditions it is a rule; without, a part of the sequence."""
    purpose: str = "turn"
    times: int | None = 1
    """Turns it serves; None is all from here on, or all that a rule matches."""
