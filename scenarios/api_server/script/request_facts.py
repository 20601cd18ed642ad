"""Facts of a request that conditions and slots of a script can use."""

import re
from collections.abc import Iterator
from typing import Protocol

import attrs

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block, RequestMessage


@attrs.frozen(kw_only=True)
class RequestFacts:
    """One request as a script sees it; None is what the request does not have.

    Each fact is read when it is asked for, from the nearer end, so that a long history costs nothing.
    """

    call: ApiRequest
    turn: int
    """The caller's own number, or how many requests a client without numbers has been served."""
    match: tuple[str, ...] = ()
    """Groups of the regular expression of the rule that answers; the first is the whole match."""

    @property
    def agent(self) -> str | None:
        """The name the caller gives itself."""
        return self.call.caller.agent

    @property
    def incarnation(self) -> int | None:
        """Which start of that name it is."""
        return self.call.caller.incarnation

    @property
    def purpose(self) -> str:
        """What the call is for."""
        return self.call.caller.purpose

    @property
    def model(self) -> str:
        """The model's id."""
        return self.call.model.id

    @property
    def tools(self) -> frozenset[str]:
        """Names of the tools offered."""
        return frozenset(str(tool.get("name")) for tool in self.call.tools)

    @property
    def first_user_text(self) -> str | None:
        """The first text block of the user."""
        return next(_user_texts(self.call.messages), None)

    @property
    def last_user_text(self) -> str | None:
        """The last text block of the user."""
        return next(_user_texts(self.call.messages, backwards=True), None)

    def find_in_input(self, pattern: "Finder") -> tuple[str, ...] | None:
        """What *pattern* finds in the texts of the user and the tool results: in the newest that it finds it in."""
        found = map(pattern.find, _input_texts(self.call.messages))
        return next((groups for groups in found if groups is not None), None)

    def find_last(self, expression: re.Pattern[str]) -> str | None:
        """Where *expression* is found last in what the user said and tools gave: its first group, or all of it."""
        for text in _input_texts(self.call.messages):
            if found := list(expression.finditer(text)):
                return found[-1][1 if expression.groups else 0]
        return None

    @property
    def last_tool_result(self) -> str | None:
        """The text of the last tool result anywhere."""
        return _last_result(self.call.messages)

    @property
    def tool_results(self) -> tuple[str, ...]:
        """The results in the last user message."""
        return _results(_last_of("user", self.call.messages))

    @property
    def tool_ids(self) -> tuple[str, ...]:
        """The calls in the last assistant message."""
        return _tool_ids(_last_of("assistant", self.call.messages))


class Finder(Protocol):
    """What can be looked for in a text."""

    def find(self, text: str) -> tuple[str, ...] | None:
        """The whole match and its groups, if it is there."""
        ...


def result_text(block: Block) -> str:
    """The text of a `tool_result`; other parts, such as images, are passed over."""
    content = block.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(_text(part) for part in parts if isinstance(part, dict) and part.get("type") == "text")


def _text(block: Block) -> str:
    text = block.get("text")
    return text if isinstance(text, str) else ""


def _input_text(block: Block) -> str:
    if block["type"] == "tool_result":
        return result_text(block)
    return _text(block) if block["type"] == "text" else ""


def _user_texts(messages: tuple[RequestMessage, ...], *, backwards: bool = False) -> Iterator[str]:
    step = -1 if backwards else 1
    for message in messages[::step]:
        if message.role == "user":
            yield from (_text(block) for block in message.content[::step] if block["type"] == "text")


def _input_texts(messages: tuple[RequestMessage, ...]) -> Iterator[str]:
    """Texts and tool results of the user's side, the last one first."""
    of_user = (message for message in reversed(messages) if message.role == "user")
    blocks = (block for message in of_user for block in reversed(message.content))
    return filter(None, map(_input_text, blocks))


def _last_result(messages: tuple[RequestMessage, ...]) -> str | None:
    for message in reversed(messages):
        for block in reversed(message.content):
            if block["type"] == "tool_result":
                return result_text(block)
    return None


def _last_of(role: str, messages: tuple[RequestMessage, ...]) -> tuple[Block, ...]:
    return next((message.content for message in reversed(messages) if message.role == role), ())


def _results(content: tuple[Block, ...]) -> tuple[str, ...]:
    return tuple(result_text(block) for block in content if block["type"] == "tool_result")


def _tool_ids(content: tuple[Block, ...]) -> tuple[str, ...]:
    return tuple(str(block.get("id")) for block in content if block["type"] == "tool_use")
