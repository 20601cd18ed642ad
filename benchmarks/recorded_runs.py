"""Recorded runs of agents from public data sets, parsed into user texts and model replies with calls."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import msgspec

DIRECTORY = Path(__file__).resolve().parents[2] / "shared" / "data" / "trajectories"
CODING = "swe_agent_demos"
"""Agents that repair programs with a shell and an editor."""
SERVICE = "tau_bench"
"""Agents that serve customers with the functions of an airline."""
CLOSING = "That is done."


@attrs.frozen(kw_only=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]
    result: str | None = None
    """Recorded result; None for a call that is executed for real."""


@attrs.frozen(kw_only=True)
class RecordedReply:
    """One reply of the model."""

    text: str
    calls: tuple[Call, ...] = ()


@attrs.frozen(kw_only=True)
class Exchange:
    """A user text, and all replies up to the one without calls."""

    prompt: str
    replies: tuple[RecordedReply, ...]


def has_runs() -> bool:
    """True if the data set is present."""
    return all(_path(kind).is_file() for kind in (CODING, SERVICE))


def read_runs(kind: str) -> list[list[Exchange]]:
    """Return all runs of *kind*, each with at least one exchange."""
    with gzip.open(_path(kind)) as lines:
        return [list(_exchanges(msgspec.json.decode(line)["messages"])) for line in lines]


def _path(kind: str) -> Path:
    return DIRECTORY / f"{kind}.jsonl.gz"


def _exchanges(messages: list[dict[str, Any]]) -> Iterator[Exchange]:
    blocks = [block for message in messages for block in message["content"]]
    results = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    prompt, replies = "", list[RecordedReply]()
    for message in messages:
        text = "\n".join(block["text"] for block in message["content"] if block["type"] == "text")
        if message["role"] == "assistant":
            replies.append(RecordedReply(text=text, calls=tuple(_calls(message["content"], results))))
        elif text:
            yield from _ended(prompt, replies)
            prompt, replies = text, []
    yield from _ended(prompt, replies)


def _ended(prompt: str, replies: list[RecordedReply]) -> Iterator[Exchange]:
    """Return the exchange, or None without replies; a run recorded up to its last call gets a final reply."""
    if replies:
        closing = (RecordedReply(text=CLOSING),) if replies[-1].calls else ()
        yield Exchange(prompt=prompt, replies=(*replies, *closing))


def _calls(content: list[dict[str, Any]], results: dict[str, str]) -> Iterator[Call]:
    for block in content:
        if block["type"] == "tool_use":
            # One recorded name is no valid Python attribute name, which fields of an input must be.
            arguments = {name.replace("-", "_"): value for name, value in block["input"].items()}
            yield Call(name=block["name"], arguments=arguments, result=results.get(block["id"], ""))
