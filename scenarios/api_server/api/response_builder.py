"""Builds the response message from a scripted reply: ids, signatures, stop rules."""

from collections.abc import Sequence
from typing import Any

import attrs
import msgspec

from coterie.scenarios.api_server.api.deterministic_ids import IdGenerator
from coterie.scenarios.api_server.caching.token_count import BYTES_PER_TOKEN, count_block
from coterie.scenarios.api_server.request.api_request import ApiRequest, Block
from coterie.scenarios.api_server.rules.thinking_signatures import ThinkingSigner
from coterie.scenarios.api_server.script.reply_selection import SelectedReply
from coterie.scenarios.api_server.script.scripted_reply import ScriptedReply

_THINKING = ("thinking", "redacted_thinking")


@attrs.frozen(kw_only=True)
class BuiltResponse:
    """What the model says, ready to be sent."""

    message_id: str
    content: tuple[Block, ...] = ()
    stop_reason: str
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    output_tokens: int = 0
    thinking_tokens: int = 0
    cut_input: str | None = None
    """The JSON text at which max_tokens cut the last block, a tool call."""


def prewarm_response(message_id: str) -> BuiltResponse:
    """The answer to `max_tokens: 0`: the prompt is cached, nothing is said."""
    return BuiltResponse(message_id=message_id, stop_reason="max_tokens")


def build_response(
    call: ApiRequest, chosen: SelectedReply, place: str, *, ids: IdGenerator, signer: ThinkingSigner, prompt_tokens: int
) -> BuiltResponse:
    """Turn *chosen* into the message that has its *place* in the run.

    Thinking is left out where the request or the model has it off. Text ends at a stop sequence, and everything ends
    at max_tokens or where the context window is full, as the API's stop reasons say.
    """
    blocks = [block for block in chosen.content if _thinks(call) or block["type"] not in _THINKING]
    blocks, ending = _until_stop_sequence(blocks, call, chosen.reply)
    limit = min(call.max_tokens, max(0, call.model.window - prompt_tokens))
    spoken = _within(blocks, limit)
    if spoken.is_cut:
        ending = _Ending("max_tokens" if limit == call.max_tokens else "model_context_window_exceeded")
    content = tuple(_finished(spoken.blocks, call, place, ids, signer))
    signer.remember([block["id"] for block in content if block["type"] == "tool_use"], content)
    return BuiltResponse(
        message_id=ids.message(place),
        content=content,
        stop_reason=ending.reason,
        stop_sequence=ending.sequence,
        stop_details=ending.details,
        output_tokens=spoken.tokens,
        thinking_tokens=spoken.thinking_tokens,
        cut_input=spoken.cut_input,
    )


@attrs.frozen
class _Ending:
    reason: str
    sequence: str | None = None
    details: dict[str, Any] | None = None


@attrs.frozen(kw_only=True)
class _TruncatedContent:
    """What of a reply fits into a limit."""

    blocks: Sequence[Block]
    tokens: int
    thinking_tokens: int
    is_cut: bool = False
    cut_input: str | None = None


def _thinks(call: ApiRequest) -> bool:
    config = call.params.get("thinking")
    kind = config.get("type") if isinstance(config, dict) else None
    return kind != "disabled" if kind else call.model.thinking == "always"


def _until_stop_sequence(blocks: list[Block], call: ApiRequest, reply: ScriptedReply) -> tuple[list[Block], _Ending]:
    """The blocks up to the first stop sequence in a text, and how the reply ends."""
    sequences = [text for text in call.params.get("stop_sequences") or () if text]
    for index, block in enumerate(blocks):
        found = [(block["text"].find(text), text) for text in sequences if text in block.get("text", "")]
        if found:
            at, text = min(found)
            kept = [{**block, "text": block["text"][:at]}] if at else []
            return [*blocks[:index], *kept], _Ending("stop_sequence", text)
    return blocks, _Ending(reply.stop, None, {"type": "refusal", **reply.refusal} if reply.refusal else None)


def _within(blocks: Sequence[Block], limit: int) -> _TruncatedContent:
    """Cut at *limit* output tokens and count what is left."""
    tokens = thought = 0
    for index, block in enumerate(blocks):
        own = count_block(block)
        is_cut = tokens + own > limit
        thought += min(own, limit - tokens) if block["type"] in _THINKING else 0
        if is_cut:
            piece, cut_input = _cut(block, limit - tokens)
            kept = [*blocks[:index], *([piece] if piece else [])]
            return _TruncatedContent(
                blocks=kept, tokens=limit, thinking_tokens=thought, is_cut=True, cut_input=cut_input
            )
        tokens += own
    return _TruncatedContent(blocks=blocks, tokens=tokens, thinking_tokens=thought)


def _cut(block: Block, tokens: int) -> tuple[Block | None, str | None]:
    """The part of *block* that fits into *tokens*, and the text at which a tool call's input ends."""
    size = tokens * BYTES_PER_TOKEN
    field = {"text": "text", "thinking": "thinking"}.get(block["type"])
    if field is not None:
        text = block[field].encode()[:size].decode(errors="ignore")
        return ({**block, field: text} if text else None), None
    if block["type"] == "tool_use" and tokens > 0:
        text = msgspec.json.encode(block["input"]).decode()
        return {**block, "input": {}}, text[: min(size, len(text) - 1)]
    return None, None


def _finished(
    blocks: Sequence[Block], call: ApiRequest, place: str, ids: IdGenerator, signer: ThinkingSigner
) -> list[Block]:
    """The blocks with tool ids and thinking signatures; a signature covers the blocks before it."""
    config = call.params.get("thinking")
    is_omitted = isinstance(config, dict) and config.get("display") == "omitted"
    done: list[Block] = []
    for index, block in enumerate(blocks):
        match block["type"]:
            case "tool_use":
                made = ids.tool_use(place, index)
                done.append({"type": "tool_use", "id": made, **{k: v for k, v in block.items() if k != "type"}})
            case "thinking":
                text = "" if is_omitted else block["thinking"]
                done.append({"type": "thinking", "thinking": text, "signature": signer.sign(call, text, done)})
            case "redacted_thinking":
                done.append({"type": "redacted_thinking", "data": signer.redact(call, block["data"], done)})
            case _:
                done.append(block)
    return done
