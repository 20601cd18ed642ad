"""Signatures of thinking blocks: created for replies, and verified when a client sends the blocks back."""

import base64
import binascii
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import attrs

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block, canonical_block
from coterie.scenarios.api_server.request.errors import invalid_request
from coterie.scenarios.api_server.rules.tool_rules import MessageRun, merged_runs

MAC_SIZE = 16

ThinkingKind = Literal["thinking", "omitted", "redacted"]
KINDS: tuple[ThinkingKind, ...] = ("thinking", "omitted", "redacted")
"""Kinds of thinking blocks; `omitted` has no text. The index of a kind in this tuple is a part of the signature."""


@attrs.frozen(kw_only=True)
class ThinkingSignature:
    """Content of a signature: kind of block, model, and keyed hashes of the text and of the conversation before it."""

    kind: ThinkingKind
    model: str
    text_mac: bytes
    prefix_mac: bytes


def _key_from(secret: bytes) -> bytes:
    return hashlib.blake2b(secret, digest_size=32).digest()


@attrs.frozen
class ThinkingKey:
    """Secret key that writes signatures and verifies them. Keys with equal secrets accept each other's signatures."""

    _key: bytes = attrs.field(alias="secret", converter=_key_from, repr=False)

    def mac_of(self, text: str) -> bytes:
        """Return the keyed hash (MAC) of the *text* of a thinking block."""
        return self._mac(b"text", text.encode())

    def prefix_mac(self) -> hashlib.blake2b:
        """Return an empty keyed hash, to which the caller adds the conversation before a thinking block."""
        return hashlib.blake2b(key=self._key, person=b"prefix", digest_size=MAC_SIZE)

    def write(self, signature: ThinkingSignature) -> str:
        """Return *signature* as base64 text, protected against changes by a MAC."""
        content = (
            bytes([KINDS.index(signature.kind)]) + signature.text_mac + signature.prefix_mac + signature.model.encode()
        )
        return base64.b64encode(self._mac(b"seal", content) + content).decode()

    def read(self, text: str) -> ThinkingSignature | None:
        """Parse and verify the *text* of a signature; None if it is not exactly a text that `write` returned."""
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None
        seal, content = raw[:MAC_SIZE], raw[MAC_SIZE:]
        if not hmac.compare_digest(seal, self._mac(b"seal", content)):
            return None
        signature = ThinkingSignature(
            kind=KINDS[content[0]],
            text_mac=content[1 : 1 + MAC_SIZE],
            prefix_mac=content[1 + MAC_SIZE : 1 + 2 * MAC_SIZE],
            model=content[1 + 2 * MAC_SIZE :].decode(),
        )
        # Several base64 texts decode to the same bytes; only the one that `write` returned is valid.
        return signature if self.write(signature) == text else None

    def _mac(self, purpose: bytes, content: bytes) -> bytes:
        return hashlib.blake2b(content, key=self._key, person=purpose, digest_size=MAC_SIZE).digest()


SIGNED_IN = {"thinking": "signature", "redacted_thinking": "data"}
"""Name of the field that contains the signature, by type of thinking block."""

BOUND_FIELDS = {
    "text": ("text",),
    "tool_use": ("id", "name", "input"),
    "thinking": ("signature",),
    "redacted_thinking": ("data",),
}
"""Fields of each type of assistant block that the conversation hash includes; of other block types, all fields."""

CANNOT_BE_MODIFIED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
    "These blocks must remain as they were in the original response."
)


@attrs.define(eq=False)
class ThinkingSigner:
    """Signs the thinking of replies, and refuses thinking that is changed, incomplete or from another conversation.

    Equal secrets give equal signatures, so that blocks stay valid if the server restarts. The stored replies are lost
    then: without its stored reply, a thinking block is verified alone, so a missing block is not detected.
    """

    _key: ThinkingKey = attrs.field(alias="secret", converter=ThinkingKey)
    remembered: int = attrs.field(default=20_000, kw_only=True)
    """Maximum number of tool calls whose reply's thinking is stored; the least recently used is removed first."""
    _replies: OrderedDict[str, tuple[str, ...]] = attrs.field(init=False, factory=OrderedDict)

    def sign(self, call: ApiRequest, thinking_text: str, earlier_blocks: Sequence[Block]) -> str:
        """Return the `signature` of a thinking block that follows *earlier_blocks* in the reply to *call*.

        *call* is the request as received, before context editing. An empty text means that the reply omits the text;
        any text that a client later sends in this block is ignored.
        """
        return self._signature("thinking" if thinking_text else "omitted", call, thinking_text, earlier_blocks)

    def redact(self, call: ApiRequest, thinking_text: str, earlier_blocks: Sequence[Block]) -> str:
        """Return the `data` of a `redacted_thinking` block; the arguments are those of `sign`."""
        return self._signature("redacted", call, thinking_text, earlier_blocks)

    def remember(self, tool_use_ids: Iterable[str], blocks: Sequence[Block]) -> None:
        """Store the signatures of thinking in the reply *blocks* by tool call id; `check` then finds missing blocks."""
        signed = tuple(_signed(block) for block in blocks if block["type"] in SIGNED_IN)
        for name in tool_use_ids if signed else ():
            self._replies[name] = signed
            self._replies.move_to_end(name)
        while len(self._replies) > self.remembered:
            self._replies.popitem(last=False)

    def check(self, call: ApiRequest) -> None:
        """Raise `ApiError` (400) for the first thinking block that is changed, missing or from another conversation.

        Blocks of other models are ignored. The conversation is compared only if the model has `binds_thinking`.
        *call* must have passed the rules of lenient mode. Only the newest reply with tool calls must be complete.
        """
        runs = merged_runs(call.messages) if self._replies else []
        thinking = call.params.get("thinking") or {}
        if len(runs) > 1 and runs[-1].leading_results() and thinking.get("type") != "disabled":
            self._check_complete(runs[-2], call)
        for path, block, prefix in self._thinking_blocks(call):
            signature = self._read(block)
            if signature is not None and signature.model != call.model.id:
                continue
            if signature is None or not self._is_unchanged(block, signature):
                raise invalid_request(f"{path}: Invalid `{SIGNED_IN[block['type']]}` in `{block['type']}` block")
            if call.model.binds_thinking and not hmac.compare_digest(signature.prefix_mac, prefix):
                raise invalid_request(f"{path}: The block is bound to a different conversation")

    def _signature(self, kind: ThinkingKind, call: ApiRequest, text: str, earlier_blocks: Sequence[Block]) -> str:
        prefix = self._begin_prefix(call)
        for message in call.messages:
            _extend(prefix, message.role, message.content)
        _extend(prefix, "assistant", earlier_blocks)
        mac = self._key.mac_of(text)
        return self._key.write(
            ThinkingSignature(kind=kind, model=call.model.id, text_mac=mac, prefix_mac=prefix.digest())
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
        """Return a keyed hash of tools and system; deferred tools are excluded, as they are not in the prompt yet."""
        prefix = self._key.prefix_mac()
        _extend(prefix, "tools", [tool for tool in call.tools if tool.get("defer_loading") is not True])
        _extend(prefix, "system prompt", call.system)
        return prefix

    def _thinking_blocks(self, call: ApiRequest) -> Iterator[tuple[str, Block, bytes]]:
        """Yield every thinking block of *call* with its path and the keyed hash of the conversation before it."""
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
        """Raise `ApiError` (400) unless *run*, assistant messages, has all thinking of its stored replies, in order."""
        expected = self._remembered_thinking(run, call.model.id)
        if not expected:
            return
        found = list(run.blocks(*SIGNED_IN))
        if len(run.messages) > 1:
            # Merged messages may include replies without tool calls, whose thinking is not remembered.
            found = [(path, block) for path, block in found if _signed(block) in expected]
        for position, (path, block) in enumerate(found):
            signature = self._read(block)
            is_expected = position < len(expected) and _signed(block) == expected[position]
            if not is_expected or signature is None or not self._is_unchanged(block, signature):
                raise invalid_request(f"{path}: {CANNOT_BE_MODIFIED}")
        if len(found) < len(expected):
            raise invalid_request(f"messages.{run.messages[0][0]}.content.0: {CANNOT_BE_MODIFIED}")

    def _remembered_thinking(self, run: MessageRun, model: str) -> list[str]:
        expected: dict[str, None] = {}
        for name in run.tool_use_ids():
            for signed in self._replies.get(name, ()):
                signature = self._key.read(signed)
                if signature is None or signature.model == model:
                    expected[signed] = None
            if name in self._replies:
                self._replies.move_to_end(name)
        return list(expected)


def _signed(block: Block) -> str:
    return str(block[SIGNED_IN[block["type"]]])


def _extend(prefix: hashlib.blake2b, role: str, blocks: Iterable[Block]) -> None:
    """Add *blocks* to a hash, each with its role, so that merging or splitting messages does not change the hash."""
    for block in blocks:
        if block.get("type") == "cache_edits":
            continue
        fields = BOUND_FIELDS.get(block.get("type", "")) if role == "assistant" else None
        data = canonical_block({name: block.get(name) for name in ("type", *fields)} if fields else block)
        prefix.update(b"%s %d " % (role.encode(), len(data)))
        prefix.update(data)
