"""Facts of a request that conditions and slots of a script can use."""

import re
from collections.abc import Callable, Iterator

import attrs

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block, RequestMessage


@attrs.frozen(kw_only=True)
class RequestFacts:
    """Facts of one request for conditions and slots; None if the request lacks the fact.

    Each fact is computed on access and searched from the nearer end, so that a long history is cheap.
    """

    call: ApiRequest
    turn: int
    """Turn number sent by the client, or else counted by the server."""
    match: tuple[str, ...] = ()
    """Groups of the regular expression in the selected rule; the first is the whole match."""

    @property
    def tools(self) -> frozenset[str]:
        """Names of the offered tools."""
        return frozenset(str(tool.get("name")) for tool in self.call.tools)

    @property
    def first_user_text(self) -> str | None:
        """First text block of the user."""
        return next(_user_texts(self.call.messages), None)

    @property
    def last_user_text(self) -> str | None:
        """Last text block of the user."""
        return next(_user_texts(self.call.messages, backwards=True), None)

    def find_in_input(self, find: Callable[[str], tuple[str, ...] | None]) -> tuple[str, ...] | None:
        """Return the result of *find* for the newest user text or tool result in which it is not None."""
        return next((groups for groups in map(find, _input_texts(self.call.messages)) if groups is not None), None)

    def find_last(self, expression: re.Pattern[str]) -> str | None:
        """Return the last match of *expression* in user texts and tool results: its first group, or all of it."""
        for text in _input_texts(self.call.messages):
            if found := list(expression.finditer(text)):
                return found[-1][1 if expression.groups else 0]
        return None

    @property
    def last_tool_result(self) -> str | None:
        """Text of the last tool result."""
        blocks = (block for message in reversed(self.call.messages) for block in reversed(message.content))
        return next((result_text(block) for block in blocks if block["type"] == "tool_result"), None)

    @property
    def tool_results(self) -> tuple[str, ...]:
        """Texts of the tool results in the last user message."""
        content = _last_of("user", self.call.messages)
        return tuple(result_text(block) for block in content if block["type"] == "tool_result")

    @property
    def tool_ids(self) -> tuple[str, ...]:
        """Ids of the tool calls in the last assistant message."""
        content = _last_of("assistant", self.call.messages)
        return tuple(str(block.get("id")) for block in content if block["type"] == "tool_use")


def result_text(block: Block) -> str:
    """Return the text of a `tool_result` without other parts, such as images."""
    content = block.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(_text(part) for part in parts if isinstance(part, dict) and part.get("type") == "text")


def _text(block: Block) -> str:
    text = block.get("text")
    return text if isinstance(text, str) else ""


def _user_texts(messages: tuple[RequestMessage, ...], *, backwards: bool = False) -> Iterator[str]:
    step = -1 if backwards else 1
    for message in messages[::step]:
        if message.role == "user":
            yield from (_text(block) for block in message.content[::step] if block["type"] == "text")


def _input_texts(messages: tuple[RequestMessage, ...]) -> Iterator[str]:
    """Yield user texts and tool results, the last one first."""
    of_user = (message for message in reversed(messages) if message.role == "user")
    for block in (block for message in of_user for block in reversed(message.content)):
        text = result_text(block) if block["type"] == "tool_result" else _text(block)
        if text and block["type"] in ("text", "tool_result"):
            yield text


def _last_of(role: str, messages: tuple[RequestMessage, ...]) -> tuple[Block, ...]:
    return next((message.content for message in reversed(messages) if message.role == role), ())
