"""History that the benchmarks send: a long session of an agent that reads, searches and edits files."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader

MODEL = "claude-opus-5-5"
MAX_TOKENS = 8_000

Block = dict[str, Any]

_PROSE = (
    "the session reads a prefix from the cache and writes what follows; every marker costs one entry, so an agent "
    "keeps its tools and its system prompt still while messages grow at their end, turn by turn, result by result"
)
_WORDS = _PROSE.split()
_NAMES = ("read", "search", "edit", "run")


def build_conversation(size: int, seed: int = 0) -> Conversation:
    """Build a conversation whose request body has *size* bytes or at most one turn more; deterministic.

    A turn has four blocks of 400 bytes on average: some text and one or two tool calls, then their results.
    """
    source = random.Random(seed)
    system = {"type": "text", "text": _prose(source, 4_000)}
    conversation = Conversation.begin(
        KeyHeader(model=MODEL), tools=[_encode(_tool(name)) for name in _NAMES], system=[_encode(system)]
    )
    conversation.append("user", [_encode({"type": "text", "text": _prose(source, 400)})])
    length = len(conversation.render(max_tokens=MAX_TOKENS).body)
    for said, results in _turns(source):
        if length >= size:
            break
        conversation.append("assistant", said)
        conversation.append("user", results)
        length += sum(len(block) + 1 for block in (*said, *results)) + _FRAMES
    return conversation


_FRAMES = len(b'{"role":"assistant","content":[]},{"role":"user","content":[]},') - 2


def _turns(source: random.Random) -> Iterator[tuple[list[bytes], list[bytes]]]:
    number = 0
    while True:
        number += 1
        calls = [f"toolu_{number:06d}{index:02d}" for index in range(1 + number % 2)]
        text = {"type": "text", "text": _prose(source, 250)}
        yield (
            [_encode(text), *(_encode(_call(source, call)) for call in calls)],
            [_encode(_result(source, call)) for call in calls],
        )


def _call(source: random.Random, call: str) -> Block:
    arguments = {
        "path": f"src/part_{source.randrange(99)}.py",
        "lines": [source.randrange(500), 40],
        "text": _prose(source, 60),
    }
    return {"type": "tool_use", "id": call, "name": source.choice(_NAMES), "input": arguments}


def _result(source: random.Random, call: str) -> Block:
    lines = (f'{number:>5}\t    value = "{_prose(source, 45)}"' for number in range(1, 10))
    content = [{"type": "text", "text": "\n".join(lines)}]
    return {"type": "tool_result", "tool_use_id": call, "content": content}


def _tool(name: str) -> Block:
    properties = {"path": {"type": "string"}, "lines": {"type": "array"}, "text": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["path"]}
    return {"name": name, "description": f"The tool that can {name} a file of the project.", "input_schema": schema}


def _prose(source: random.Random, size: int) -> str:
    return " ".join(source.choices(_WORDS, k=size // 5))[:size]


def _encode(block: Block) -> bytes:
    return msgspec.json.encode(block)
