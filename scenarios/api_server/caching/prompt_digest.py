"""The prompt of a request as a chain of hashes (digests), one for each block of tools, system and messages.

The digest of a block covers the whole prefix up to this block. Parameters that invalidate the cache of a section are
hashed at the start of that section. So two prompts share a cache entry exactly if their digests at a position are
equal.
"""

import functools
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import attrs
import msgspec

from coterie.scenarios.api_server.caching.context_editing import (
    CACHE_EDITS,
    apply_edits,
    clears_thinking,
    deleted_references,
    references,
    starts_turn,
    without_thinking,
)
from coterie.scenarios.api_server.caching.token_count import count_block, is_deferred
from coterie.scenarios.api_server.request.api_request import ApiRequest, Block, RequestMessage, canonical_block

DIGEST_SIZE = 16
WEB_TOOLS = ("web_search_", "web_fetch_")
RUNS = ("tool_use", "tool_result")
"""Consecutive blocks of one of these types in a message count as one step of the cache lookup."""
RICH = frozenset({"image", "document", "search_result", "tool_result"})
"""Types of blocks that can be or contain an image, or enable citations."""

# The byte before a block gives its role; a capital letter marks the first block of a message.
_FRAMES = {"user": (b"U", b"u"), "assistant": (b"A", b"a"), "system": (b"Y", b"y")}

_settings = msgspec.json.Encoder(order="sorted")


@attrs.frozen(kw_only=True, eq=False)
class PromptDigest:
    """Digests and token counts of a prompt, as parallel sequences with one position for each block."""

    blocks: Sequence[Block]
    digests: Sequence[bytes]
    """Hash of the prefix that ends with each position."""
    cumulative: Sequence[int]
    """Number of tokens up to and including each position, without deleted tool results."""
    runs: Sequence[int]
    """Number of each position's step in a cache lookup, from 0; positions of the same step have equal numbers."""
    system_start: int
    messages_start: int
    owner: bytes
    """Hash of the API key, so that clients with different keys never share cache entries."""
    speed: str
    settings: bytes
    """Hash of tool choice, thinking, effort and output format, which change the prompt beyond its text."""
    applied_edits: tuple[dict[str, Any], ...] = ()
    cleared_tokens: int = 0
    """Tokens removed by the edits of the parameter `context_management`."""
    deletions: tuple[tuple[int, int], ...] = ()
    """Index of each `cache_edits` block, with the tokens of the tool results that this block is the first to delete."""

    @property
    def total(self) -> int:
        """Number of input tokens of the request, after context editing."""
        return self.tokens_at(len(self.blocks) - 1)

    @property
    def tools_digest(self) -> bytes:
        """Digest of the tool definitions alone."""
        return _digest(*map(canonical_block, self.blocks[: self.system_start]))

    @property
    def system_digest(self) -> bytes:
        """Digest of the system blocks alone."""
        return _digest(*map(canonical_block, self.blocks[self.system_start : self.messages_start]))

    def digest_before(self, index: int) -> bytes:
        """Return the hash of the prefix before position *index*; for index 0, the hash of the API key."""
        return self.digests[index - 1] if index else self.owner

    def tokens_at(self, index: int) -> int:
        """Return the number of tokens of the prompt up to and including block *index*; 0 for a negative index."""
        return self.cumulative[index] if index >= 0 else 0


@attrs.define(eq=False)
class _Chain:
    """Builder of a `PromptDigest`: receives the blocks in prompt order and computes their digests."""

    digest: bytes
    deleted: frozenset[str]
    blocks: list[Block] = attrs.field(factory=list)
    digests: list[bytes] = attrs.field(factory=list)
    cumulative: list[int] = attrs.field(factory=list)
    runs: list[int] = attrs.field(factory=list)
    deletions: list[tuple[int, int]] = attrs.field(factory=list)
    tokens: int = 0
    run: int = -1
    _withheld: dict[str, int] = attrs.field(factory=dict)

    def mix(self, *settings: object) -> None:
        """Include *settings* in the digests of all following blocks."""
        self.digest = blake2b(self.digest + _settings.encode(settings), digest_size=DIGEST_SIZE).digest()

    def extend(self, blocks: Iterable[Block], first: bytes, rest: bytes) -> None:
        """Append the blocks of one message, of the tools, or of the system prompt.

        *first* and *rest* are hashed before the first block and before each other block, to include the role in the
        digest.
        """
        # The hot loop of the server: local variables, and no object for each block.
        frame, previous = first, None
        digest, tokens, run, deleted = self.digest, self.tokens, self.run, self.deleted
        for block in blocks:
            encoded = canonical_block(block)
            digest = blake2b(digest + frame + encoded, digest_size=DIGEST_SIZE).digest()
            own = count_block(block, encoded)
            tokens += self._without_deleted(block, own) if deleted else own
            kind = block.get("type")
            if kind != CACHE_EDITS:
                # An edit does not count as a step of the cache lookup.
                if kind != previous or kind not in RUNS:
                    run += 1
                previous = kind
            self.blocks.append(block)
            self.digests.append(digest)
            self.cumulative.append(tokens)
            self.runs.append(run)
            frame = rest
        self.digest, self.tokens, self.run = digest, tokens, run

    def _without_deleted(self, block: Block, tokens: int) -> int:
        kind = block.get("type")
        if kind == CACHE_EDITS:
            newly = sum(self._withheld.pop(reference, 0) for reference in references(block))
            self.deletions.append((len(self.blocks), newly))
        reference = block.get("tool_use_id")
        if kind != "tool_result" or not isinstance(reference, str) or reference not in self.deleted:
            return tokens
        self._withheld[reference] = self._withheld.get(reference, 0) + tokens
        return 0


def build_prompt_digest(call: ApiRequest, *, cache_edits_beta: str | None = None) -> PromptDigest:
    """Return the digest of the prompt that the model would read for *call*, after context editing and cache edits.

    *cache_edits_beta* is the beta header value that permits cache edits. Raises `ApiError` (400) for an invalid edit.
    """
    deleted = deleted_references(call, cache_edits_beta)
    messages, applied = _edited_messages(call, deleted)
    has_images, has_citations = (False, False) if call.block_types.isdisjoint(RICH) else _features(messages)
    tools = [tool for tool in call.tools if not is_deferred(tool)]
    settings = _Settings.of(call)

    owner = _owner(call.caller.key)
    chain = _Chain(owner, deleted=frozenset())
    chain.mix(call.model.id, settings.thinking_before("tools"))
    # Toggling a web tool keeps the cache of the other tools, so web tools belong to the system section.
    chain.extend([tool for tool in tools if not _is_web_tool(tool)], b"T", b"T")
    chain.mix(settings.speed, settings.format, has_citations, settings.thinking_before("system"))
    chain.extend([tool for tool in tools if _is_web_tool(tool)], b"W", b"W")
    system_start = len(chain.blocks)
    chain.extend(call.system, b"S", b"S")
    chain.mix(settings.tool_choice, has_images, settings.thinking_before("messages"))
    messages_start = len(chain.blocks)
    chain.deleted = deleted
    for message in messages:
        chain.extend(message.content, *_FRAMES[message.role])
    return PromptDigest(
        blocks=chain.blocks,
        digests=chain.digests,
        cumulative=chain.cumulative,
        runs=chain.runs,
        system_start=system_start,
        messages_start=messages_start,
        owner=owner,
        speed=settings.speed,
        settings=settings.digest(),
        applied_edits=applied,
        cleared_tokens=sum(edit["cleared_input_tokens"] for edit in applied),
        deletions=tuple(chain.deletions),
    )


@attrs.frozen(kw_only=True)
class _Settings:
    """Parameters of a request that are part of the cache key; an omitted parameter equals its explicit default."""

    section: str
    """Section (`tools`, `system` or `messages`) from which a change of thinking or effort invalidates the cache."""
    thinking: Any
    effort: Any
    tool_choice: Any
    format: Any
    speed: str

    @classmethod
    def of(cls, call: ApiRequest) -> "_Settings":
        params, config = call.params, call.params.get("output_config")
        config = config if isinstance(config, dict) else {}
        default = {"type": "adaptive" if call.model.thinking == "always" else "disabled"}
        return cls(
            section=call.model.thinking_invalidates,
            thinking=params.get("thinking") or default,
            effort=config.get("effort") or call.model.effort,
            tool_choice=_tool_choice(params.get("tool_choice")),
            format=config.get("format") or params.get("output_format"),
            speed=str(params.get("speed") or "standard"),
        )

    def thinking_before(self, section: str) -> Any:
        return (self.thinking, self.effort) if section == self.section else None

    def digest(self) -> bytes:
        return _digest(_settings.encode((self.thinking, self.effort, self.tool_choice, self.format)))


@functools.lru_cache(1024)
def _owner(key: str) -> bytes:
    return _digest(b"", key.encode())


def _tool_choice(value: Any) -> Any:
    if not isinstance(value, dict):
        return value or {"type": "auto"}
    return {key: item for key, item in value.items() if key != "disable_parallel_tool_use" or item}


def _digest(*parts: bytes) -> bytes:
    # Length prefixes keep different lists of parts from having equal bytes.
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return blake2b(framed, digest_size=DIGEST_SIZE).digest()


def _is_web_tool(tool: Block) -> bool:
    return str(tool.get("type")).startswith(WEB_TOOLS)


def _edited_messages(
    call: ApiRequest, deleted: Collection[str]
) -> tuple[Sequence[RequestMessage], tuple[dict[str, Any], ...]]:
    if call.model.strips_thinking and not clears_thinking(call):
        last = max((index for index, message in enumerate(call.messages) if starts_turn(message)), default=0)
        messages = (*map(without_thinking, call.messages[:last]), *call.messages[last:])
        call = attrs.evolve(call, messages=messages)
    if call.params.get("context_management") is None:
        return call.messages, ()
    edited = apply_edits(call, deleted)
    return edited.messages, edited.applied


def _features(messages: Sequence[RequestMessage]) -> tuple[bool, bool]:
    """Return two booleans: True if any block is an image, and True if any block enables citations."""
    rich = [block for message in messages for block in message.content if block["type"] in RICH]
    # The loop appends nested parts to the list it iterates over.
    for block in rich:
        holder = block.get("source") if block["type"] == "document" else block
        content = holder.get("content") if isinstance(holder, dict) else None
        if isinstance(content, list):
            rich += [part for part in content if isinstance(part, dict) and str(part.get("type")) in RICH]
    citations = (block.get("citations") for block in rich)
    cites = any(isinstance(setting, dict) and setting.get("enabled") is True for setting in citations)
    return any(block["type"] == "image" for block in rich), cites
