"""Rules over tool calls and results: the message after a call has exactly one result for it."""

import itertools
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import attrs

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block, RequestMessage
from coterie.scenarios.api_server.request.errors import invalid_request


@attrs.frozen(kw_only=True)
class MessageRun:
    """Consecutive messages of one role, which the API reads as one message."""

    role: str
    messages: tuple[tuple[int, RequestMessage], ...]
    """Messages with their index in the request."""

    def blocks(self, *types: str) -> Iterator[tuple[str, Block]]:
        """Yield the blocks of these *types*, each with its path in the request."""
        for number, message in self.messages:
            for index, block in enumerate(message.content):
                if block["type"] in types:
                    yield f"messages.{number}.content.{index}", block

    def tool_use_ids(self) -> list[str]:
        """Return the ids of the tool calls, in order."""
        return [block["id"] for _, message in self.messages for block in message.content if block["type"] == "tool_use"]

    def leading_results(self) -> list[str]:
        """Return the ids of the tool results before any other block; cache edits do not count."""
        blocks = (block for _, message in self.messages for block in message.content)
        spoken = (block for block in blocks if block["type"] != "cache_edits")
        return [
            block["tool_use_id"] for block in itertools.takewhile(lambda block: block["type"] == "tool_result", spoken)
        ]


def merged_runs(messages: Sequence[RequestMessage]) -> list[MessageRun]:
    """Group *messages* by role as the API merges them; `system` messages do not separate groups."""
    spoken = [(number, message) for number, message in enumerate(messages) if message.role != "system"]
    groups = itertools.groupby(spoken, key=lambda item: item[1].role)
    return [MessageRun(role=role, messages=tuple(group)) for role, group in groups]


def every_tool_use_has_its_result(call: ApiRequest) -> None:
    """Check that results are at the start of the user message after their calls, exactly one for each call."""
    if call.block_types.isdisjoint(("tool_use", "tool_result")):
        return
    _tool_blocks_have_their_role(call)
    runs = merged_runs(call.messages)
    _ids_are_unique(runs)
    for before, run in itertools.pairwise([None, *runs]):
        if run is not None and run.role == "user":
            _results_are_expected(run, set(before.tool_use_ids()) if before else set())
    for run, after in itertools.pairwise([*runs, None]):
        if run is not None and run.role == "assistant":
            _uses_are_answered(run, set(after.leading_results()) if after else set())


def _tool_blocks_have_their_role(call: ApiRequest) -> None:
    owners = {"tool_use": "assistant", "tool_result": "user"}
    for number, message in enumerate(call.messages):
        for index, block in enumerate(message.content):
            owner = owners.get(block["type"], message.role)
            if owner != message.role:
                raise invalid_request(
                    f"messages.{number}.content.{index}: `{block['type']}` blocks can only be in `{owner}` messages"
                )


def _ids_are_unique(runs: Sequence[MessageRun]) -> None:
    seen: set[str] = set()
    for run in runs:
        for path, block in run.blocks("tool_use"):
            if block["id"] in seen:
                raise invalid_request(f"{path}: `tool_use` ids must be unique: {block['id']}")
            seen.add(block["id"])


def _results_are_expected(run: MessageRun, asked: AbstractSet[str]) -> None:
    left = set(asked)
    for path, block in run.blocks("tool_result"):
        name = block["tool_use_id"]
        if name not in asked:
            raise invalid_request(
                f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if name not in left:
            raise invalid_request(
                f"{path}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {name}"
            )
        left.remove(name)


def _uses_are_answered(run: MessageRun, answered: AbstractSet[str]) -> None:
    missing = [name for name in run.tool_use_ids() if name not in answered]
    if missing:
        number = run.messages[-1][0]
        raise invalid_request(
            f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )
