from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.files import TornWrite, file_faults, frame_record
from coterie.mailbox.contract import DeadLetter
from coterie.mailbox.dead_letters import DeadLetters, ResendRecord
from tests.examples import examples
from tests.mailbox.file_mail import envelope
from tests.seeded_faults import SeededFaults


def dead_letter(raw: bytes = b"\x00\xff", *, has_envelope: bool = False) -> DeadLetter:
    sent = envelope(1) if has_envelope else None
    return DeadLetter(reason="corrupt", detail="the line is damaged", mailbox="ada", at=5.5, envelope=sent, raw=raw)


def test_dead_letters_are_private_and_read_back_unchanged(tmp_path: Path) -> None:
    assert DeadLetters(tmp_path / "dead").pending() == []
    assert list(tmp_path.iterdir()) == []
    buried = [dead_letter(), dead_letter(has_envelope=True), dead_letter(b"")]
    for one in buried:
        DeadLetters(tmp_path / "dead").add(one)
    assert [found for _, found in DeadLetters(tmp_path / "dead").pending()] == buried
    assert (tmp_path / "dead").stat().st_mode & 0o077 == 0
    assert (tmp_path / "dead" / "letters.jsonl").stat().st_mode & 0o077 == 0


def test_dead_letter_is_pending_until_it_is_resent_and_then_in_the_history(tmp_path: Path) -> None:
    """A process may be killed at any point, also after it stored the message: the next one uses the same id."""
    dead = DeadLetters(tmp_path)
    for raw in (b"one", b"two"):
        dead.add(dead_letter(raw))
    (first, _), (second, _) = dead.pending()
    id_ = dead.begin_resend(first, 7.0)
    with file_faults(SeededFaults(seed=3, torn=1.0)), pytest.raises(TornWrite):
        dead.finish_resend(first, id_, 0.0)
    assert [found.raw for _, found in dead.pending()] == [b"one", b"two"], "it is not stored yet"
    assert DeadLetters(tmp_path).begin_resend(first, 8.0) == id_ != DeadLetters(tmp_path).begin_resend(second, 0.0)
    dead.finish_resend(first, id_, 8.0)
    assert dead.pending() == [(second, dead_letter(b"two"))]
    assert [(one.letter.raw, one.resent) for one in dead.history()] == [
        (b"one", ResendRecord(id=id_, at=8.0)),
        (b"two", None),
    ]


def test_history_after_a_number_does_not_read_earlier_records(tmp_path: Path) -> None:
    dead = DeadLetters(tmp_path)
    for raw in (b"one", b"two", b"three", b"four"):
        dead.add(dead_letter(raw))
    _, (second, _), (third, _), (fourth, _) = dead.pending()
    for number in (second, fourth):
        dead.finish_resend(number, dead.begin_resend(number, 0.0), 0.0)
    with (tmp_path / "letters.jsonl").open("r+b") as log:
        log.write(b"?" * second)
    assert [(one.number, one.resent is None) for one in dead.history(after=second)] == [(third, True), (fourth, False)]
    assert dead.history(after=fourth) == []


def test_dead_letter_records_of_another_version_are_skipped(tmp_path: Path) -> None:
    dead = DeadLetters(tmp_path)
    dead.add(dead_letter(b"one"))
    [(number, _)] = dead.pending()
    with (tmp_path / "letters.jsonl").open("ab") as log:
        log.write(frame_record(b'{"number":%d,"id":"x","is_done":true,"when":1.0,"v":2}' % number))
    assert [found.raw for _, found in dead.pending()] == [b"one"]


@given(garbage=st.binary(max_size=200))
@examples(50)
def test_garbage_between_dead_letters_is_skipped(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    dead = DeadLetters(tmp_path_factory.mktemp("dead"))
    dead.add(dead_letter(b"one"))
    with (dead.directory / "letters.jsonl").open("ab") as log:
        log.write(garbage)
    dead.add(dead_letter(b"two"))
    assert [found.raw for _, found in dead.pending()] == [b"one", b"two"]
