"""Conversation of one agent: tools, system prompt and messages as bytes, to which new messages are appended."""

from collections.abc import Iterable, Sequence

import attrs
import msgspec

from coterie.agents.loop.conversation.blocks import Block, text_block
from coterie.agents.loop.conversation.cache_markers import (
    FIVE_MINUTES,
    CacheTtls,
    MarkerHistory,
    choose_markers,
    last_markable,
)
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.prefix import Prefix, PrefixMessage
from coterie.agents.loop.conversation.request_body import RenderedRequest, render_chunks
from coterie.agents.loop.conversation.segment import Segment
from coterie.agents.loop.model.catalog import Role


@attrs.define(eq=False)
class Conversation:
    """Tools, system prompt and all messages of an agent, as the bytes that its model requests contain.

    Messages are only appended. Any change of earlier bytes, or of parameters that affect the prompt cache, begins a new
    epoch (period without such changes) and forgets the earlier cache markers. A method that raises changes nothing.
    """

    prefix: Prefix
    epoch: int = 0
    marks: MarkerHistory = attrs.field(factory=MarkerHistory)

    @classmethod
    def begin(cls, header: KeyHeader, *, tools: Iterable[bytes] = (), system: Iterable[bytes] = ()) -> "Conversation":
        """Create a conversation without messages. Raises `ValueError` if a tool or block is not a JSON object."""
        prefix = Prefix(header=header).extended("tools", [Block.read(data, "tools") for data in tools])
        return cls(prefix.extended("system", [Block.read(data, "system") for data in system]))

    def __len__(self) -> int:
        return len(self.prefix)

    @property
    def header(self) -> KeyHeader:
        """Request parameters outside the prompt, such as the model, that decide which cache entries can be read."""
        return self.prefix.header

    @property
    def segments(self) -> Sequence[Segment]:
        """All tool definitions, system blocks and message blocks in order, as a new list."""
        return self.prefix.segments

    @property
    def messages(self) -> list[PrefixMessage]:
        """All messages in order, each with its role and its content blocks as JSON bytes."""
        return self.prefix.messages()

    @property
    def prefix_hash(self) -> bytes:
        """Hash of the key header (request parameters), the tools, the system prompt and all messages."""
        return self.prefix.hash_at(len(self))

    @property
    def shared_hash(self) -> bytes | None:
        """Hash of the first part, which other agents may send too; None if empty or sent by this agent since a rewrite.

        A fork (agent that continues its parent's conversation) shares all but its directive (task) with its siblings.
        Any other agent shares its tools and system prompt with all agents of its type.
        """
        if self.marks.shared is not None:
            return self.prefix[self.marks.shared].hash
        prompt = self.prefix.prompt_length
        return self.prefix.hash_at(prompt) if prompt and self.marks.previous is None else None

    @property
    def open_tool_uses(self) -> list[str]:
        """Ids of the tool calls without results: all calls in the last message, if it is a message of the assistant."""
        found: list[str] = []
        for index in range(len(self) - 1, -1, -1):
            segment = self.prefix[index]
            if segment.role != "assistant":
                break
            if segment.block_type == "tool_use" and segment.tool_use_id is not None:
                found.append(segment.tool_use_id)
            if segment.opens_message:
                break
        return found[::-1]

    def prefix_bytes(self, length: int | None = None) -> bytes:
        """Return request parameters (key header) and the first *length* segments (blocks), by default all, as bytes."""
        return self.prefix.to_bytes(length)

    def first_difference(self, other: "Conversation") -> int | None:
        """Return the first index at which blocks differ or are missing; 0 if the parameters differ; None if equal."""
        return self.prefix.first_difference(other.prefix)

    def extends(self, other: "Conversation") -> bool:
        """Return True if this conversation begins with all bytes of *other*, request parameters included."""
        return len(self) >= len(other) and self.prefix.hash_at(len(other)) == other.prefix_hash

    def append(self, role: Role, blocks: Sequence[bytes]) -> None:
        """Append one message with the content blocks *blocks*, each the bytes of a JSON object.

        The first image of a conversation begins a new epoch (forgets all cache markers), because no earlier cache entry
        can then be read. Raises `ValueError` for an unknown role, without blocks, and for invalid JSON.
        """
        read = [Block.read(data) for data in blocks]
        if any(block.has_image for block in read) and not self.header.has_images:
            header = attrs.evolve(self.header, has_images=True)
            self._restart(self.prefix.under(header).with_message(role, read))
        else:
            self.prefix = self.prefix.with_message(role, read)

    def fork(self) -> "Conversation":
        """Return a copy that can continue independently; it shares the stored bytes with this conversation."""
        return Conversation(self.prefix, self.epoch, self.marks)

    def fork_with(self, placeholder: str, directive: str) -> "Conversation":
        """Return a copy with a new user message: *placeholder* as result of each pending tool call, then *directive*.

        Copies with the same placeholder differ only in *directive*, the task of a sub-agent. The first request of each
        has a cache marker (`cache_control`) before the directive, so that they share a cache entry.
        """
        fork = self.fork()
        answers = [_tool_result(id_, placeholder) for id_ in self.open_tool_uses]
        fork.append("user", [*answers, text_block(directive)])
        fork.marks = attrs.evolve(fork.marks, shared=last_markable(fork.segments, 0, len(fork) - 1))
        return fork

    def answered(self) -> "Conversation":
        """Return a copy that ends with the last answered request, without the reply; a full copy if there was none."""
        length = len(self) if self.marks.previous is None else self.marks.previous + 1
        while length < len(self) and not self.prefix[length].opens_message:
            length += 1
        return Conversation(self.prefix.cut(length), self.epoch, self.marks)

    def rewrite(self, messages: Iterable[tuple[Role, Sequence[bytes]]], header: KeyHeader | None = None) -> None:
        """Replace all messages by *messages*, and the key header (request parameters) by *header*, if given.

        Begins an epoch (period without rewrites) and forgets all cache markers. Raises `ValueError` for a bad message.
        """
        read = [(role, [Block.read(data) for data in blocks]) for role, blocks in messages]
        has_images = any(block.has_image for _, blocks in read for block in blocks)
        header = attrs.evolve(header or self.header, has_images=has_images)
        prefix = self.prefix.cut(self.prefix.prompt_length).under(header)
        for role, blocks in read:
            prefix = prefix.with_message(role, blocks)
        self._restart(prefix)

    def render(
        self, *, max_tokens: int, stream: bool = True, ttl: CacheTtls = FIVE_MINUTES, helper: bool = False
    ) -> RenderedRequest:
        """Return the body of the next model request, with cache markers. Raises `ValueError` if there is no message.

        With *helper*, for a short call in the background, the end of the conversation carries no marker.
        """
        markers = choose_markers(self.prefix, self.marks, ttl=ttl, helper=helper)
        chunks = render_chunks(self.prefix, markers, max_tokens=max_tokens, stream=stream)
        marks = tuple(marker.index for marker in markers)
        return RenderedRequest(chunks=chunks, marks=marks, epoch=self.epoch, max_tokens=max_tokens)

    def sent(self, rendered: RenderedRequest) -> None:
        """Record that the API has begun to answer *rendered*, so that a cache entry exists at each of its markers.

        Does nothing if a new epoch has begun (for example, by `rewrite`) after *rendered* was rendered.
        """
        if rendered.epoch == self.epoch and rendered.marks:
            self.marks = MarkerHistory(previous=rendered.marks[-1])

    def _restart(self, prefix: Prefix) -> None:
        self.prefix, self.epoch, self.marks = prefix, self.epoch + 1, MarkerHistory()


def _tool_result(tool_use_id: str, text: str) -> bytes:
    content = [{"type": "text", "text": text}]
    return msgspec.json.encode({"type": "tool_result", "tool_use_id": tool_use_id, "content": content})
