"""Signatures of thinking blocks: written into replies and verified in requests."""

import base64
import binascii
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import attrs

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block
from coterie.scenarios.api_server.request.canonical_block import canonical_block
from coterie.scenarios.api_server.request.errors import invalid_request
from coterie.scenarios.api_server.rules.tool_pairing import MessageRun, merged_runs

MAC_SIZE = 16

ThinkingKind = Literal["thinking", "omitted", "redacted"]
KINDS: tuple[ThinkingKind, ...] = ("thinking", "omitted", "redacted")
"""Omitted: thinking whose text was not shown. The order is part of the written form."""


@attrs.frozen(kw_only=True)
class ThinkingSignature:
    """Which model thought, what, and behind which prefix."""

    kind: ThinkingKind
    model: str
    text_mac: bytes
    prefix_mac: bytes


def _key_from(secret: bytes) -> bytes:
    return hashlib.blake2b(secret, digest_size=32).digest()


@attrs.frozen
class ThinkingKey:
    """Writes signatures and reads only its own; equal secrets make equal keys."""

    _key: bytes = attrs.field(alias="secret", converter=_key_from, repr=False)

    def mac_of(self, text: str) -> bytes:
        """The MAC over a block's text."""
        return self._mac(b"text", text.encode())

    def prefix_mac(self) -> hashlib.blake2b:
        """A running MAC for the prefix of a conversation, with nothing in it yet."""
        return hashlib.blake2b(key=self._key, person=b"prefix", digest_size=MAC_SIZE)

    def write(self, signature: ThinkingSignature) -> str:
        """*signature* in base64, sealed so that no byte of it can change."""
        said = (
            bytes([KINDS.index(signature.kind)]) + signature.text_mac + signature.prefix_mac + signature.model.encode()
        )
        return base64.b64encode(self._mac(b"seal", said) + said).decode()

    def read(self, text: str) -> ThinkingSignature | None:
        """What *text* says, or None if it is not exactly what `write` gave."""
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None
        seal, said = raw[:MAC_SIZE], raw[MAC_SIZE:]
        if not hmac.compare_digest(seal, self._mac(b"seal", said)):
            return None
        signature = ThinkingSignature(
            kind=KINDS[said[0]],
            text_mac=said[1 : 1 + MAC_SIZE],
            prefix_mac=said[1 + MAC_SIZE : 1 + 2 * MAC_SIZE],
            model=said[1 + 2 * MAC_SIZE :].decode(),
        )
        # Base64 has several spellings of the same bytes; only one was written.
        return signature if self.write(signature) == text else None

    def _mac(self, purpose: bytes, said: bytes) -> bytes:
        return hashlib.blake2b(said, key=self._key, person=purpose, digest_size=MAC_SIZE).digest()


SIGNED_IN = {"thinking": "signature", "redacted_thinking": "data"}
"""The field of each kind of thinking block that holds its signature."""

BOUND_FIELDS = {
    "text": ("text",),
    "tool_use": ("id", "name", "input"),
    "thinking": ("signature",),
    "redacted_thinking": ("data",),
}
"""What binds of a block the model wrote: clients send it back with other fields reordered, added or left out."""

CANNOT_BE_MODIFIED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
    "These blocks must remain as they were in the original response."
)
BOUND_ELSEWHERE = "The block is bound to a different conversation"


@attrs.define(eq=False)
class ThinkingSigner:
    """Signs the thinking of replies, and refuses what comes back changed, incomplete or from elsewhere.

    The same secret gives the same signatures, so blocks outlive the server. What it was told to remember does
    not: a message it has forgotten is only checked block by block.
    """

    _key: ThinkingKey = attrs.field(alias="secret", converter=ThinkingKey)
    remembered: int = attrs.field(default=20_000, kw_only=True)
    """How many tool calls are remembered; the longest unused is forgotten first."""
    _replies: OrderedDict[str, tuple[str, ...]] = attrs.field(init=False, factory=OrderedDict)

    def sign(self, call: ApiRequest, thinking_text: str, earlier_blocks: Sequence[Block]) -> str:
        """The `signature` of a thinking block that comes after *earlier_blocks* in the reply to *call*.

        *call* is as it was received, before any context editing. Empty text is that of an omitted block:
        whatever a client later puts in its place is ignored.
        """
        return self._signature("thinking" if thinking_text else "omitted", call, thinking_text, earlier_blocks)

    def redact(self, call: ApiRequest, thinking_text: str, earlier_blocks: Sequence[Block]) -> str:
        """The `data` of a redacted_thinking block, likewise."""
        return self._signature("redacted", call, thinking_text, earlier_blocks)

    def remember(self, tool_use_ids: Iterable[str], blocks: Sequence[Block]) -> None:
        """Keep which thinking stood in the reply that made these tool calls; *blocks* is the whole reply."""
        signed = tuple(_signed(block) for block in blocks if block["type"] in SIGNED_IN)
        for name in tool_use_ids if signed else ():
            self._replies[name] = signed
            self._replies.move_to_end(name)
        while len(self._replies) > self.remembered:
            self._replies.popitem(last=False)

    def check(self, call: ApiRequest) -> None:
        """Raise `ApiError` (400) for the first thinking block that may not stand where it does.

        Blocks of another model are ignored. The call must have passed the rules about shapes.
        """
        run = _open_tool_loop(call) if self._replies else None
        if run is not None:
            self._check_complete(run, call)
        for path, block, prefix in self._thinking_blocks(call):
            signature = self._read(block)
            if signature is not None and signature.model != call.model.id:
                continue
            if signature is None or not self._is_unchanged(block, signature):
                raise invalid_request(f"{path}: Invalid `{SIGNED_IN[block['type']]}` in `{block['type']}` block")
            if call.model.binds_thinking and not hmac.compare_digest(signature.prefix_mac, prefix):
                raise invalid_request(f"{path}: {BOUND_ELSEWHERE}")

    def _signature(self, kind: ThinkingKind, call: ApiRequest, text: str, earlier_blocks: Sequence[Block]) -> str:
        prefix = self._begin_prefix(call)
        for message in call.messages:
            _extend(prefix, message.role, message.content)
        _extend(prefix, "assistant", earlier_blocks)
        return self._key.write(
            ThinkingSignature(
                kind=kind,
                model=call.model.id,
                text_mac=self._key.mac_of(text),
                prefix_mac=prefix.digest(),
            )
        )

    def _read(self, block: Block) -> ThinkingSignature | None:
        signature = self._key.read(_signed(block))
        if signature is None or (signature.kind == "redacted") != (block["type"] == "redacted_thinking"):
            return None
        return signature

    def _is_unchanged(self, block: Block, signature: ThinkingSignature) -> bool:
        return signature.kind != "thinking" or hmac.compare_digest(
            signature.text_mac, self._key.mac_of(block["thinking"])
        )

    def _begin_prefix(self, call: ApiRequest) -> hashlib.blake2b:
        """Tools that load later are not in the prompt yet."""
        prefix = self._key.prefix_mac()
        _extend(prefix, "tools", [tool for tool in call.tools if tool.get("defer_loading") is not True])
        _extend(prefix, "system prompt", call.system)
        return prefix

    def _thinking_blocks(self, call: ApiRequest) -> Iterator[tuple[str, Block, bytes]]:
        """Every thinking block with its path and the MAC of its prefix, in one pass that ends at the last."""
        if call.block_types.isdisjoint(SIGNED_IN):
            return
        left = sum(block["type"] in SIGNED_IN for message in call.messages for block in message.content)
        prefix = self._begin_prefix(call)
        for number, message in enumerate(call.messages):
            for index, block in enumerate(message.content):
                if block["type"] in SIGNED_IN:
                    yield f"messages.{number}.content.{index}", block, prefix.digest()
                    left -= 1
                    if left == 0:
                        return
                _extend(prefix, message.role, [block])

    def _check_complete(self, run: MessageRun, call: ApiRequest) -> None:
        """The thinking of *run* is all that its replies had, unchanged and in order."""
        wanted = self._remembered_thinking(run, call.model.id)
        if not wanted:
            return
        found = list(run.blocks(*SIGNED_IN))
        if len(run.messages) > 1:
            # Among merged messages may be replies without tool calls, whose thinking nobody remembers.
            found = [(path, block) for path, block in found if _signed(block) in wanted]
        for position, (path, block) in enumerate(found):
            if position >= len(wanted) or not self._is_original(block, wanted[position]):
                raise invalid_request(f"{path}: {CANNOT_BE_MODIFIED}")
        if len(found) < len(wanted):
            raise invalid_request(f"messages.{run.messages[0][0]}.content.0: {CANNOT_BE_MODIFIED}")

    def _remembered_thinking(self, run: MessageRun, model: str) -> list[str]:
        wanted: dict[str, None] = {}
        for name in run.tool_use_ids():
            for signed in self._replies.get(name, ()):
                signature = self._key.read(signed)
                if signature is None or signature.model == model:
                    wanted[signed] = None
            if name in self._replies:
                self._replies.move_to_end(name)
        return list(wanted)

    def _is_original(self, block: Block, wanted: str) -> bool:
        signature = self._read(block)
        return _signed(block) == wanted and signature is not None and self._is_unchanged(block, signature)


def _open_tool_loop(call: ApiRequest) -> MessageRun | None:
    """The latest assistant message, if the request answers its tool calls and goes on thinking."""
    runs = merged_runs(call.messages)
    if len(runs) < 2 or not runs[-1].leading_results():
        return None
    thinking = call.params.get("thinking") or {}
    return None if thinking.get("type") == "disabled" else runs[-2]


def _signed(block: Block) -> str:
    return str(block[SIGNED_IN[block["type"]]])


def _extend(prefix: hashlib.blake2b, role: str, blocks: Iterable[Block]) -> None:
    """Add *blocks* one by one under their role, so that merging or splitting messages changes nothing."""
    for block in blocks:
        if block.get("type") == "cache_edits":
            continue
        fields = BOUND_FIELDS.get(block.get("type", "")) if role == "assistant" else None
        data = canonical_block({name: block.get(name) for name in ("type", *fields)} if fields else block)
        prefix.update(b"%s %d " % (role.encode(), len(data)))
        prefix.update(data)
