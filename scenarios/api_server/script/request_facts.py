"""Values of a request that a script can use in conditions (`when`) and in slots such as `{{last_user_text}}`."""

import re
from collections.abc import Callable, Iterator

import attrs

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block, RequestMessage


@attrs.frozen(kw_only=True)
class RequestFacts:
    """Values of one request for the conditions and slots of a script; None or empty if the request has no such value.

    Each value is searched on access, from the nearer end of the conversation, so that a long history is cheap.
    """

    call: ApiRequest
    turn: int
    """Number of the turn as sent by the client, or else as counted by the server."""
    match: tuple[str, ...] = ()
    """Match of the regular expression in the selected rule, for `{{match.N}}`: the whole match, then its groups."""

    @property
    def tools(self) -> frozenset[str]:
        """Names of the tools that the request offers to the model."""
        return frozenset(str(tool.get("name")) for tool in self.call.tools)

    @property
    def first_user_text(self) -> str | None:
        """The first text block in user messages; None if there is none."""
        return next(_user_texts(self.call.messages), None)

    @property
    def last_user_text(self) -> str | None:
        """The last text block in user messages; None if there is none."""
        return next(_user_texts(self.call.messages, backwards=True), None)

    def find_in_input(self, find: Callable[[str], tuple[str, ...] | None]) -> tuple[str, ...] | None:
        """Return the first result of *find* that is not None, over user texts and tool results, the newest first."""
        return next((groups for groups in map(find, _input_texts(self.call.messages)) if groups is not None), None)

    def find_last(self, expression: re.Pattern[str]) -> str | None:
        """Return the last match (or its first group) of *expression* in user texts and tool results; None if absent."""
        for text in _input_texts(self.call.messages):
            if found := list(expression.finditer(text)):
                return found[-1][1 if expression.groups else 0]
        return None

    @property
    def last_tool_result(self) -> str | None:
        """Text of the last tool result in the request; None without a tool result."""
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
    """Return the text of a `tool_result` block, without other parts such as images."""
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
    """Yield user texts and the texts of tool results, from the last to the first."""
    of_user = (message for message in reversed(messages) if message.role == "user")
    for block in (block for message in of_user for block in reversed(message.content)):
        text = result_text(block) if block["type"] == "tool_result" else _text(block)
        if text and block["type"] in ("text", "tool_result"):
            yield text


def _last_of(role: str, messages: tuple[RequestMessage, ...]) -> tuple[Block, ...]:
    return next((message.content for message in reversed(messages) if message.role == role), ())
