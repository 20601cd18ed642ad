"""A reply of a script, and the conditions (`when`) that make it a rule."""

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
"""Maximum number of characters of a request's text in the explanation of a condition that it does not meet."""


@attrs.frozen(kw_only=True)
class TextPattern:
    """A text to find: a substring, or a `/regular expression/` with any of the flags i, m and s."""

    text: str
    """The pattern as written in the script."""
    expression: re.Pattern[str] | None = None

    @classmethod
    def parse(cls, text: str) -> "TextPattern":
        """Parse a pattern. Raises `ValueError` for an invalid regular expression."""
        written = _EXPRESSION.fullmatch(text)
        if written is None:
            return cls(text=text)
        flags = re.NOFLAG
        for letter in written[2]:
            if letter not in _FLAGS:
                raise ValueError(f"unknown flag {letter!r} of the regular expression; expected i, m or s")
            flags |= _FLAGS[letter]
        try:
            # Python warns about expressions whose meaning will change; scripts must not depend on them.
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return cls(text=text, expression=re.compile(written[1], flags))
        except (re.error, OverflowError, RecursionError, Warning) as exc:
            raise ValueError(f"the regular expression /{written[1]}/ is invalid: {exc}; correct it") from exc

    def find(self, text: str) -> tuple[str, ...] | None:
        """Return the match and its groups, or the substring itself; None if *text* does not contain the pattern."""
        if self.expression is None:
            return (self.text,) if self.text in text else None
        found = self.expression.search(text)
        return found and (found[0], *found.groups(default=""))

    def __str__(self) -> str:
        return f"containing {self.text!r}" if self.expression is None else f"matching {self.text}"


@attrs.frozen(kw_only=True)
class ReplyConditions:
    """Conditions (`when`) of a rule, a reply selected by the content of a request; a condition None is always met."""

    last_user_text: TextPattern | None = None
    last_tool_result: TextPattern | None = None
    model: TextPattern | None = None
    tool: str | None = None
    """Condition: the request offers the model a tool with this name."""
    turn: int | None = None
    heard: tuple[TextPattern, ...] = ()
    """Condition: each pattern is found in a user text or tool result of the request."""
    unheard: tuple[TextPattern, ...] = ()
    """Condition: no pattern is found in a user text or tool result of the request."""

    @property
    def groups(self) -> int | None:
        """Number of groups that `found` returns after the whole match; None if no condition is a regular expression."""
        patterns = (self.last_user_text, self.last_tool_result, self.model, *self.heard)
        return next((p.expression.groups for p in patterns if p and p.expression), None)

    def found(self, facts: RequestFacts) -> tuple[str, ...]:
        """Return the match and groups of the first regular expression among the conditions; empty without one.

        The order is last_user_text, last_tool_result, model, heard. The result is used for `{{match.N}}`.
        """
        seen = (facts.last_user_text, facts.last_tool_result, facts.call.model.id)
        patterns = (self.last_user_text, self.last_tool_result, self.model)
        for pattern, text in zip(patterns, seen, strict=True):
            if pattern and pattern.expression:
                return pattern.find(text or "") or ()
        heard = next((pattern for pattern in self.heard if pattern.expression), None)
        return (heard and facts.find_in_input(heard.find)) or ()

    def failures(self, facts: RequestFacts) -> tuple[str, ...]:
        """Describe each failed condition, with its value and the value of the request; empty if all are met."""
        checks = (
            _text_failure("last_user_text", self.last_user_text, facts.last_user_text),
            _text_failure("last_tool_result", self.last_tool_result, facts.last_tool_result),
            _text_failure("model", self.model, facts.call.model.id),
            self._tool_failure(facts),
            None if self.turn in (None, facts.turn) else f"turn {self.turn}, this is turn {facts.turn}",
            *(f"an earlier text {p}" for p in self.heard if facts.find_in_input(p.find) is None),
            *(f"no earlier text {p}" for p in self.unheard if facts.find_in_input(p.find) is not None),
        )
        return tuple(failure for failure in checks if failure)

    def _tool_failure(self, facts: RequestFacts) -> str | None:
        if self.tool is None or self.tool in facts.tools:
            return None
        return f"tool {self.tool!r}, the request offers {', '.join(sorted(facts.tools)) or 'no tools'}"


def _text_failure(name: str, pattern: TextPattern | None, text: str | None) -> str | None:
    if pattern is None or (text is not None and pattern.find(text)):
        return None
    label = name.replace("_", " ")
    seen = f"has no {label}" if text is None else f"has the {label} {shorten(text, _SHOWN)}"
    return f"{name} {pattern}, the request {seen}"


@attrs.frozen(kw_only=True)
class ScriptedReply:
    """One reply of a script: its content, the requests that it answers, its delays, signals and fault."""

    name: str
    """Position in the script: `default[2]` is the second reply of `default`."""
    line: int
    content: tuple[Block, ...]
    """Blocks of the API whose slots are not filled yet; a tool call has an id only if the script sets one."""
    stop: str = "end_turn"
    refusal: Mapping[str, str | None] | None = None
    """`category` and `explanation` that the reply sends with the stop reason `refusal`; None without them."""
    delay: float = 0.0
    """Seconds before the reply starts."""
    token_delay: float = 0.0
    """Seconds between stream events."""
    asked: tuple[str, ...] = ()
    """Names of script signals that are raised when the reply is requested, before it waits."""
    until: tuple[str, ...] = ()
    """Names of script signals that must be raised before the reply starts; the server waits for them."""
    signals: tuple[str, ...] = ()
    """Names of script signals, for which other replies can wait, raised after this reply was sent completely."""
    fault: HttpFault | None = None
    """Fault that the server injects into the first requests for the reply; None for no fault."""
    when: ReplyConditions | None = None
    """Conditions that make the reply a rule; None if the reply is part of the sequence, which is used in order."""
    purpose: str = "turn"
    times: int | None = 1
    """Number of turns that the reply answers; None for all further turns, or all turns that match the rule."""
