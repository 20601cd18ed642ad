import time
import uuid
from typing import get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.mailbox.address import LONGEST_NAME
from coterie.mailbox.envelope import (
    VERSION,
    Envelope,
    MessageId,
    MessageKind,
    Recipient,
    Sender,
    SenderKind,
    new_message_id,
)
from coterie.mailbox.errors import EnvelopeCorrupt
from tests.examples import examples

KEY = b"alice's key"

texts = st.text(st.characters(exclude_categories=["Cs"]))
names = st.text("azAZ09_-", max_size=LONGEST_NAME - 1).map("a{}".format)
counts = st.integers(min_value=1, max_value=2**63 - 1)
times = st.floats(allow_nan=False, allow_infinity=False)
ids = st.builds(new_message_id)
envelopes = st.builds(
    Envelope,
    sender=st.builds(Sender, name=names, incarnation=counts, session=texts, kind=st.sampled_from(get_args(SenderKind))),
    recipient=st.builds(Recipient, name=names, incarnation=st.none() | counts),
    sequence=counts,
    kind=st.sampled_from(get_args(MessageKind)),
    body=texts,
    summary=st.none() | texts,
    in_reply_to=st.none() | ids,
    group=st.none() | texts,
    created=times,
    expires=st.none() | times,
    traceparent=st.none() | texts,
    id=ids,
    mac=st.none() | texts,
)


def _envelope() -> Envelope:
    return Envelope(
        sender=Sender(name="alice", incarnation=1, session="s", kind="peer"),
        recipient=Recipient(name="bob"),
        sequence=1,
        body="Hello.",
        created=1.5,
        id=MessageId("01890a5d-ac96-774b-bcce-b302099a8057"),
    )


@examples(60)
@given(envelopes, st.binary(min_size=1, max_size=32))
def test_envelope_and_signature_survive_a_round_trip(envelope: Envelope, key: bytes) -> None:
    data = envelope.to_bytes()
    assert b"\n" not in data
    assert Envelope.from_bytes(data) == envelope
    travelled = Envelope.from_bytes(envelope.sign(key).to_bytes())
    assert travelled.is_signed_with(key)
    assert not travelled.is_signed_with(key + b"x")
    assert not envelope.is_signed_with(key)


@examples(60)
@given(envelopes, st.data())
def test_damaged_envelope_parses_or_raises_envelope_corrupt(envelope: Envelope, data: st.DataObject) -> None:
    raw = bytearray(envelope.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        Envelope.from_bytes(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    except EnvelopeCorrupt as exc:
        assert str(exc).startswith("not an envelope: ")  # noqa: PT017 - most damage must raise, some may not


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        _envelope().to_bytes().replace(b"Hello", b"H\xffllo"),
        _envelope().to_bytes().replace(b"Hello", rb"\ud800"),
        _envelope().to_bytes().replace(b'"bob"', b'"../bob"'),
        _envelope().to_bytes().replace(b'"alice"', b'"\xd0\xb0lice"'),
        _envelope().to_bytes().replace(b'"message"', b'"approval"'),
        _envelope().to_bytes().replace(b'"peer"', b'"root"'),
        _envelope().to_bytes().replace(b"1.5", b"1e999"),
        _envelope().to_bytes()[:-1],
        _envelope().to_bytes() * 2,
        b"[" * 100_000,
    ],
)
def test_invalid_envelopes_are_corrupt(data: bytes) -> None:
    with pytest.raises(EnvelopeCorrupt):
        Envelope.from_bytes(data)


def test_envelope_of_another_version_is_corrupt_and_unknown_fields_are_ignored() -> None:
    later = attrs.evolve(_envelope(), v=VERSION + 1).to_bytes()
    with pytest.raises(EnvelopeCorrupt, match="format version 2, not 1"):
        Envelope.from_bytes(later)
    assert Envelope.from_bytes(_envelope().to_bytes()[:-1] + b',"crc":"00000000"}') == _envelope()


@pytest.mark.parametrize("mac", [None, "", "0" * 32, "\u00e9" * 32, "\0", "x" * 100_000])
def test_malformed_mac_is_invalid(mac: str | None) -> None:
    assert not attrs.evolve(_envelope(), mac=mac).is_signed_with(KEY)


def test_message_ids_are_unique_uuids_that_sort_by_their_time() -> None:
    before = time.time_ns() // 1_000_000
    first = uuid.UUID(new_message_id())
    assert (first.version, first.variant) == (7, uuid.RFC_4122)
    assert before <= first.int >> 80 <= time.time_ns() // 1_000_000
    while (later := uuid.UUID(new_message_id())).int >> 80 == first.int >> 80:
        pass
    assert str(first) < str(later)
    assert len({new_message_id() for _ in range(20_000)}) == 20_000
