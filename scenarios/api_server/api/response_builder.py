"""Builds a response message from a scripted reply: adds ids and thinking signatures, and truncates it at limits."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import msgspec

from coterie.scenarios.api_server.caching.token_count import BYTES_PER_TOKEN, count_block
from coterie.scenarios.api_server.request.api_request import ApiCaller, ApiRequest, Block
from coterie.scenarios.api_server.rules.thinking_signatures import ThinkingSigner
from coterie.scenarios.api_server.script.reply_selection import SelectedReply

_THINKING = ("thinking", "redacted_thinking")


@attrs.define(eq=False)
class IdGenerator:
    """Creates the ids of messages, tool calls and HTTP requests; equal seeds give equal ids.

    The ids of a reply depend on agent, purpose and turn, so that a repeated request gets the same ids again. Request
    ids depend on a counter, so that each request has a new id.
    """

    seed: int = 0
    _requests: Counter[str] = attrs.field(factory=Counter)

    def request(self, side: str = "api") -> str:
        """Return a new id for an HTTP request. *side* is `api` or `control`; each has a separate counter."""
        self._requests[side] += 1
        return "req_" + self._derive("request", side, str(self._requests[side]))

    def message(self, key: str) -> str:
        """Return the message id of a reply; *key* is from `reply_key`."""
        return "msg_" + self._derive("message", key)

    def tool_use(self, key: str, index: int) -> str:
        """Return the id of the tool call in block *index* of a reply; *key* is from `reply_key`."""
        return "toolu_" + self._derive("tool", key, str(index))

    def _derive(self, *parts: str) -> str:
        text = "\0".join((str(self.seed), *parts))
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def reply_key(caller: ApiCaller, turn: int, body_digest: bytes) -> str:
    """Return the text that identifies a reply: agent, purpose and turn.

    If the request has no agent or turn header, it is the hash of the body and the *turn*. The incarnation (number
    of the agent's process) is not included, because an agent that is resumed after a crash must get the same ids again.
    """
    if caller.agent is None or caller.turn is None:
        # Without an agent name, one API key may hold several conversations.
        return f"{body_digest.hex()}\0{turn}"
    return f"{caller.agent}\0{caller.purpose}\0{turn}"


@attrs.frozen(kw_only=True)
class BuiltResponse:
    """Content, ids, stop reason and token counts of a response message, ready to send."""

    message_id: str
    content: tuple[Block, ...] = ()
    stop_reason: str
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    output_tokens: int = 0
    thinking_tokens: int = 0
    cut_input: str | None = None
    """Truncated JSON input of the last block if this is a tool call that a token limit interrupted; None otherwise."""


def build_response(
    call: ApiRequest, selected: SelectedReply, key: str, *, ids: IdGenerator, signer: ThinkingSigner, prompt_tokens: int
) -> BuiltResponse:
    """Build the message of a *selected* reply; its ids derive from *key*, a result of `reply_key`.

    Thinking is omitted if the request disables it; without a request parameter, if the model does not always think. The
    reply ends, as in the API, at a stop sequence, at `max_tokens`, or when prompt and reply fill the context window.
    """
    reply, config = selected.reply, call.params.get("thinking")
    kind = config.get("type") if isinstance(config, dict) else None
    is_thinking = kind != "disabled" if kind else call.model.thinking == "always"
    response = BuiltResponse(
        message_id=ids.message(key),
        content=tuple(block for block in selected.content if is_thinking or block["type"] not in _THINKING),
        stop_reason=reply.stop,
        stop_details={"type": "refusal", **reply.refusal} if reply.refusal else None,
    )
    response = _until_stop_sequence(response, call)
    response = _within(response, call, max(0, call.model.window - prompt_tokens))
    content = tuple(_finished(response.content, call, key, ids, signer))
    signer.remember([block["id"] for block in content if block["type"] == "tool_use"], content)
    return attrs.evolve(response, content=content)


def _until_stop_sequence(response: BuiltResponse, call: ApiRequest) -> BuiltResponse:
    """Return *response* up to the first stop sequence in a text; unchanged if no text contains one."""
    sequences = [text for text in call.params.get("stop_sequences") or () if text]
    for index, block in enumerate(response.content):
        found = [(block["text"].find(text), text) for text in sequences if text in block.get("text", "")]
        if found:
            at, text = min(found)
            kept = [{**block, "text": block["text"][:at]}] if at else []
            content = (*response.content[:index], *kept)
            return BuiltResponse(
                message_id=response.message_id, content=content, stop_reason="stop_sequence", stop_sequence=text
            )
    return response


def _within(response: BuiltResponse, call: ApiRequest, room: int) -> BuiltResponse:
    """Count the tokens of *response* and cut it at `max_tokens` or at *room*, the free tokens of the context window."""
    limit = min(call.max_tokens, room)
    tokens = thought = 0
    for index, block in enumerate(response.content):
        own = count_block(block)
        thought += min(own, limit - tokens) if block["type"] in _THINKING else 0
        if tokens + own > limit:
            piece, cut_input = _cut(block, limit - tokens)
            return BuiltResponse(
                message_id=response.message_id,
                content=(*response.content[:index], *([piece] if piece else [])),
                stop_reason="max_tokens" if limit == call.max_tokens else "model_context_window_exceeded",
                output_tokens=limit,
                thinking_tokens=thought,
                cut_input=cut_input,
            )
        tokens += own
    return attrs.evolve(response, output_tokens=tokens, thinking_tokens=thought)


def _cut(block: Block, tokens: int) -> tuple[Block | None, str | None]:
    """Return the first *tokens* of *block*, None if nothing remains; for a tool call also its truncated JSON input."""
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
    blocks: Sequence[Block], call: ApiRequest, key: str, ids: IdGenerator, signer: ThinkingSigner
) -> list[Block]:
    """Return *blocks* with tool ids and thinking signatures. A signature covers the request and the blocks before."""
    config = call.params.get("thinking")
    is_omitted = isinstance(config, dict) and config.get("display") == "omitted"
    done: list[Block] = []
    for index, block in enumerate(blocks):
        match block["type"]:
            case "tool_use":
                id_ = ids.tool_use(key, index)
                done.append({"type": "tool_use", "id": id_, **{k: v for k, v in block.items() if k != "type"}})
            case "thinking":
                text = "" if is_omitted else block["thinking"]
                done.append({"type": "thinking", "thinking": text, "signature": signer.sign(call, text, done)})
            case "redacted_thinking":
                done.append({"type": "redacted_thinking", "data": signer.redact(call, block["data"], done)})
            case _:
                done.append(block)
    return done
