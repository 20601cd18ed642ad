"""Conversation of one agent: an append-only prefix, its epoch, and its cache markers."""

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
    """All messages of an agent, with its tools and system prompt, as bytes.

    A conversation is append-only. Any change to earlier bytes or to the cache key begins a new epoch, which forgets
    the markers of the last one. A method that raises has changed nothing.
    """

    prefix: Prefix
    epoch: int = 0
    marks: MarkerHistory = attrs.field(factory=MarkerHistory)

    @classmethod
    def begin(cls, header: KeyHeader, *, tools: Iterable[bytes] = (), system: Iterable[bytes] = ()) -> "Conversation":
        """Create a conversation without messages. Raises `ValueError` for bytes that are not one JSON object."""
        prefix = Prefix(header=header).extended("tools", [Block.read(data, "tools") for data in tools])
        return cls(prefix.extended("system", [Block.read(data, "system") for data in system]))

    def __len__(self) -> int:
        return len(self.prefix)

    @property
    def header(self) -> KeyHeader:
        """The key header of the current epoch."""
        return self.prefix.header

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments in order, as a new list."""
        return self.prefix.segments

    @property
    def messages(self) -> list[PrefixMessage]:
        """All messages as bytes."""
        return self.prefix.messages()

    @property
    def prefix_hash(self) -> bytes:
        """The hash of the whole prefix; the hash of the key header if there are no segments."""
        return self.prefix.hash_at(len(self))

    @property
    def shared_hash(self) -> bytes | None:
        """The hash of the part that other agents may share; None after the first reply of the epoch.

        A fork shares all but its directive with its siblings. Any other conversation shares its tools and system prompt
        with all agents of its type.
        """
        if self.marks.shared is not None:
            return self.prefix[self.marks.shared].hash
        prompt = self.prefix.prompt_length
        return self.prefix.hash_at(prompt) if prompt and self.marks.previous is None else None

    @property
    def open_tool_uses(self) -> list[str]:
        """Ids of the tool calls that have no results yet: those of the last message, if it is the assistant's."""
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
        """Return key header, tools, system and messages as bytes, optionally only of the first *length* segments."""
        return self.prefix.to_bytes(length)

    def first_difference(self, other: "Conversation") -> int | None:
        """Return the index of the first segment that differs or that only one conversation has; None if equal."""
        return self.prefix.first_difference(other.prefix)

    def extends(self, other: "Conversation") -> bool:
        """Return True if this conversation begins with all of *other*, byte for byte."""
        return len(self) >= len(other) and self.prefix.hash_at(len(other)) == other.prefix_hash

    def append(self, role: Role, blocks: Sequence[bytes]) -> None:
        """Append one message.

        The first image of a conversation begins a new epoch, because images change the cache key. Raises `ValueError`
        for an unknown role, for no blocks, and for bytes that are not one JSON object.
        """
        read = [Block.read(data) for data in blocks]
        if any(block.has_image for block in read) and not self.header.has_images:
            header = attrs.evolve(self.header, has_images=True)
            self._restart(self.prefix.under(header).with_message(role, read))
        else:
            self.prefix = self.prefix.with_message(role, read)

    def fork(self) -> "Conversation":
        """Return an independent conversation with the same segments, epoch and marker history."""
        return Conversation(self.prefix, self.epoch, self.marks)

    def fork_with(self, placeholder: str, directive: str) -> "Conversation":
        """Return a fork with one more message: *placeholder* answers each open tool call, then comes *directive*.

        Siblings with the same placeholder differ only in the directive; their first request marks the end of the part
        that they share.
        """
        fork = self.fork()
        answers = [_tool_result(id_, placeholder) for id_ in self.open_tool_uses]
        fork.append("user", [*answers, text_block(directive)])
        fork.marks = attrs.evolve(fork.marks, shared=last_markable(fork.segments, 0, len(fork) - 1))
        return fork

    def answered(self) -> "Conversation":
        """Return a fork that ends where the last answered request ended; the whole conversation before any reply."""
        length = len(self) if self.marks.previous is None else self.marks.previous + 1
        while length < len(self) and not self.prefix[length].opens_message:
            length += 1
        return Conversation(self.prefix.cut(length), self.epoch, self.marks)

    def rewrite(self, messages: Iterable[tuple[Role, Sequence[bytes]]], header: KeyHeader | None = None) -> None:
        """Begin a new epoch with the same tools and system prompt, then *messages*. Raises as `append` does."""
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
        """Render the request for the next reply; with *helper* the end of the conversation carries no marker.

        Raises `ValueError` if there is no message yet.
        """
        markers = choose_markers(self.prefix, self.marks, ttl=ttl, helper=helper)
        chunks = render_chunks(self.prefix, markers, max_tokens=max_tokens, stream=stream)
        marks = tuple(marker.index for marker in markers)
        return RenderedRequest(chunks=chunks, marks=marks, epoch=self.epoch, max_tokens=max_tokens)

    def sent(self, rendered: RenderedRequest) -> None:
        """Note that the response to *rendered* has begun, so that the cache entries at its markers exist.

        Does nothing if a new epoch has begun since *rendered* was rendered.
        """
        if rendered.epoch == self.epoch and rendered.marks:
            self.marks = MarkerHistory(previous=rendered.marks[-1])

    def _restart(self, prefix: Prefix) -> None:
        self.prefix, self.epoch, self.marks = prefix, self.epoch + 1, MarkerHistory()


def _tool_result(tool_use_id: str, text: str) -> bytes:
    content = [{"type": "text", "text": text}]
    return msgspec.json.encode({"type": "tool_result", "tool_use_id": tool_use_id, "content": content})
