from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.files import SeededFaults, Torn, file_faults
from coterie.mailbox.contract import DeadLetter
from coterie.mailbox.dead_letters import DeadLetters
from tests.mailbox.file_mail import envelope


def letter(raw: bytes = b"\x00\xff", *, has_envelope: bool = False) -> DeadLetter:
    sent = envelope(1) if has_envelope else None
    return DeadLetter(reason="corrupt", detail="the checksum is wrong", mailbox="ada", at=5.5, envelope=sent, raw=raw)


def test_what_is_buried_is_found_with_its_reason(tmp_path: Path) -> None:
    buried = [letter(), letter(has_envelope=True), letter(b"")]
    for one in buried:
        DeadLetters(tmp_path / "dead").bury(one)
    assert [found for _, found in DeadLetters(tmp_path / "dead").letters()] == buried


def test_where_nobody_died_there_are_no_letters(tmp_path: Path) -> None:
    assert DeadLetters(tmp_path / "dead").letters() == []
    assert list(tmp_path.iterdir()) == []


def test_the_number_of_a_letter_stays(tmp_path: Path) -> None:
    dead = DeadLetters(tmp_path)
    dead.bury(letter(b"one"))
    [(number, _)] = dead.letters()
    dead.bury(letter(b"two"))
    assert dict(dead.letters())[number] == letter(b"one")
    assert len(dict(dead.letters())) == 2


def test_a_torn_letter_hides_no_other(tmp_path: Path) -> None:
    dead = DeadLetters(tmp_path)
    dead.bury(letter(b"one"))
    with file_faults(SeededFaults(seed=3, torn=1.0)), pytest.raises(Torn):
        dead.bury(letter(b"torn"))
    dead.bury(letter(b"two"))
    assert [found.raw for _, found in dead.letters()] == [b"one", b"two"]


def test_a_letter_that_must_survive_a_power_cut_is_synced(tmp_path: Path) -> None:
    with file_faults(SeededFaults(seed=1, fsync=1.0)):
        DeadLetters(tmp_path).bury(letter())
        with pytest.raises(OSError, match="Input/output"):
            DeadLetters(tmp_path, is_durable=True).bury(letter())


def test_letters_are_closed_to_other_users(tmp_path: Path) -> None:
    DeadLetters(tmp_path / "dead").bury(letter())
    assert (tmp_path / "dead").stat().st_mode & 0o077 == 0
    assert (tmp_path / "dead" / "letters.jsonl").stat().st_mode & 0o077 == 0


@given(garbage=st.binary(max_size=200))
@settings(max_examples=50, deadline=None)
def test_garbage_between_letters_is_passed_over(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    dead = DeadLetters(tmp_path_factory.mktemp("dead"))
    dead.bury(letter(b"one"))
    with (dead.directory / "letters.jsonl").open("ab") as log:
        log.write(garbage)
    dead.bury(letter(b"two"))
    assert [found.raw for _, found in dead.letters()] == [b"one", b"two"]
