"""From a scripted reply to the message the API would send: ids, signatures, and the cuts of stop rules."""

from collections.abc import Sequence
from typing import Any

import attrs
import msgspec

from coterie.scenarios.server.call import Block, Call
from coterie.scenarios.server.choice import Chosen
from coterie.scenarios.server.ids import Ids
from coterie.scenarios.server.thinking import ThinkingSigner
from coterie.scenarios.server.tokens import BYTES_PER_TOKEN, count_block

_THINKING = ("thinking", "redacted_thinking")


@attrs.frozen(kw_only=True)
class Composed:
    """What the model says, ready to be sent."""

    content: tuple[Block, ...]
    stop_reason: str
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    output_tokens: int = 0
    thinking_tokens: int = 0
    cut_input: str | None = None
    """The JSON text at which max_tokens cut the last block, a tool call."""


PREWARM = Composed(content=(), stop_reason="max_tokens")
"""The answer to `max_tokens: 0`: the prompt is cached, nothing is said."""


def compose(
    call: Call, chosen: Chosen, body_digest: bytes, *, ids: Ids, signer: ThinkingSigner, prompt_tokens: int
) -> Composed:
    """Turn *chosen* into a message.

    Thinking is left out where the request or the model has it off. Text ends at a stop sequence, and everything ends
    at max_tokens or where the context window is full, as the API's stop reasons say.
    """
    blocks = [block for block in chosen.content if _thinks(call) or block["type"] not in _THINKING]
    composed = _at_stop_sequence(blocks, call, chosen)
    composed = _at_limit(composed, min(call.max_tokens, max(0, call.model.window - prompt_tokens)), call)
    content = tuple(_finished(composed.content, call, body_digest, ids, signer))
    signer.remember([block["id"] for block in content if block["type"] == "tool_use"], content)
    return composed if content == composed.content else attrs.evolve(composed, content=content)


def _thinks(call: Call) -> bool:
    config = call.params.get("thinking")
    kind = config.get("type") if isinstance(config, dict) else None
    return kind != "disabled" if kind else call.model.thinking == "always"


def _at_stop_sequence(blocks: Sequence[Block], call: Call, chosen: Chosen) -> Composed:
    reply = chosen.reply
    details = {"type": "refusal", **reply.refusal} if reply.refusal else None
    sequences = [text for text in call.params.get("stop_sequences") or () if text]
    for index, block in enumerate(blocks):
        found = [(block["text"].find(text), text) for text in sequences if text in block.get("text", "")]
        if found:
            at, text = min(found)
            kept = [*blocks[:index], *([{**block, "text": block["text"][:at]}] if at else [])]
            return Composed(content=tuple(kept), stop_reason="stop_sequence", stop_sequence=text)
    return Composed(content=tuple(blocks), stop_reason=reply.stop, stop_details=details)


def _at_limit(composed: Composed, limit: int, call: Call) -> Composed:
    """Cut at *limit* output tokens and count what is left."""
    kept: list[Block] = []
    used = thought = 0
    for block in composed.content:
        tokens = count_block(block)
        if used + tokens > limit:
            piece, cut_input = _cut(block, limit - used)
            reason = "max_tokens" if limit == call.max_tokens else "model_context_window_exceeded"
            return Composed(
                content=(*kept, *([piece] if piece else [])),
                stop_reason=reason,
                output_tokens=limit,
                thinking_tokens=thought + (limit - used if block["type"] in _THINKING else 0),
                cut_input=cut_input,
            )
        kept.append(block)
        used += tokens
        thought += tokens if block["type"] in _THINKING else 0
    return attrs.evolve(composed, output_tokens=used, thinking_tokens=thought)


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


def _finished(blocks: Sequence[Block], call: Call, body_digest: bytes, ids: Ids, signer: ThinkingSigner) -> list[Block]:
    """The blocks with tool ids and thinking signatures; a signature covers the blocks before it."""
    config = call.params.get("thinking")
    is_omitted = isinstance(config, dict) and config.get("display") == "omitted"
    done: list[Block] = []
    for index, block in enumerate(blocks):
        match block["type"]:
            case "tool_use":
                made = ids.tool_use(call.caller, body_digest, index)
                done.append({"type": "tool_use", "id": made, **{k: v for k, v in block.items() if k != "type"}})
            case "thinking":
                text = "" if is_omitted else block["thinking"]
                done.append({"type": "thinking", "thinking": text, "signature": signer.sign(call, text, done)})
            case "redacted_thinking":
                done.append({"type": "redacted_thinking", "data": signer.redact(call, block["data"], done)})
            case _:
                done.append(block)
    return done
