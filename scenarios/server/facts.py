"""What a script may know of a request: its conditions look at these facts, its slots are filled from them."""

from collections.abc import Iterator

import attrs

from coterie.scenarios.server.call import Block, Call, Message


@attrs.frozen(kw_only=True)
class Facts:
    """One request as a script sees it; None is what the request does not have."""

    agent: str | None
    incarnation: int | None
    purpose: str
    turn: int
    """The caller's own number, or how many requests a client without numbers has been served."""
    model: str
    tools: frozenset[str]
    """Names of the tools offered."""
    first_user_text: str | None
    last_user_text: str | None
    last_tool_result: str | None
    tool_results: tuple[str, ...]
    """The results in the last user message."""
    tool_ids: tuple[str, ...]
    """The calls in the last assistant message."""
    match: tuple[str, ...] = ()
    """Groups of the regular expression of the rule that answers; the first is the whole match."""


def facts_of(call: Call, turn: int) -> Facts:
    """Read *call* from both ends, so that a long history costs nothing."""
    caller = call.caller
    return Facts(
        agent=caller.agent,
        incarnation=caller.incarnation,
        purpose=caller.purpose,
        turn=turn,
        model=call.model.id,
        tools=frozenset(str(tool.get("name")) for tool in call.tools),
        first_user_text=next(_user_texts(call.messages), None),
        last_user_text=next(_user_texts(call.messages, backwards=True), None),
        last_tool_result=_last_result(call.messages),
        tool_results=_results(_last_of("user", call.messages)),
        tool_ids=_tool_ids(_last_of("assistant", call.messages)),
    )


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


def _user_texts(messages: tuple[Message, ...], *, backwards: bool = False) -> Iterator[str]:
    step = -1 if backwards else 1
    for message in messages[::step]:
        if message.role == "user":
            yield from (_text(block) for block in message.content[::step] if block["type"] == "text")


def _last_result(messages: tuple[Message, ...]) -> str | None:
    for message in reversed(messages):
        for block in reversed(message.content):
            if block["type"] == "tool_result":
                return result_text(block)
    return None


def _last_of(role: str, messages: tuple[Message, ...]) -> tuple[Block, ...]:
    return next((message.content for message in reversed(messages) if message.role == role), ())


def _results(content: tuple[Block, ...]) -> tuple[str, ...]:
    return tuple(result_text(block) for block in content if block["type"] == "tool_result")


def _tool_ids(content: tuple[Block, ...]) -> tuple[str, ...]:
    return tuple(str(block.get("id")) for block in content if block["type"] == "tool_use")
