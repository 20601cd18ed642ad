import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.files import file_faults
from coterie.mailbox import roster as roster_module
from coterie.mailbox.contract import Member, MemberOrigin
from coterie.mailbox.errors import NameInvalid, UnknownRecipient
from coterie.mailbox.roster import FileRoster, LocalRoster, RosterFailed, RosterState
from tests.seeded_faults import SeededFaults

JOIN_MANY = """
import sys
from pathlib import Path
import trio
from coterie.mailbox.roster import FileRoster

async def main(path, prefix):
    roster = FileRoster(Path(path))
    for number in range(5):
        await roster.join(f"{prefix}-{number}")
        await roster.join("shared")
        await roster.set_state(f"{prefix}-{number}", "idle")
    await roster.leave(f"{prefix}-0")

trio.run(main, *sys.argv[1:])
"""


def test_incarnations_increase_after_a_member_left() -> None:
    roster = LocalRoster()
    assert [roster.join("bob").incarnation for _ in range(2)] == [1, 2]
    roster.leave("bob")
    assert roster.members() == {}
    assert roster.join("Bob") == Member(name="Bob", incarnation=3), "in any case"


def test_two_names_cannot_differ_in_case_only() -> None:
    roster = LocalRoster()
    roster.join("Bob")
    with pytest.raises(NameInvalid, match="differs from 'Bob' only in case"):
        roster.join("bOB")
    assert list(roster.members()) == ["Bob"]


@pytest.mark.parametrize("name", ["../bob", "user", "USER", "outgoing"])
def test_invalid_names_cannot_join(name: str) -> None:
    with pytest.raises(NameInvalid):
        LocalRoster().join(name)


def test_incarnation_inherits_the_engagement_of_the_last_one() -> None:
    roster = LocalRoster()
    scouting, editing = MemberOrigin(kind="scout", parent="main", task="Look."), MemberOrigin(task="Edit.")
    assert roster.join("bob").engagement == MemberOrigin()
    assert roster.join("bob", scouting).engagement == scouting
    roster.set_state("bob", "ended")
    assert (roster.members()["bob"].engagement, roster.members()["bob"].state) == (scouting, "ended")
    again = roster.join("bob")
    assert (again.engagement, again.state) == (scouting, "running")
    assert roster.join("bob", editing).engagement == editing


def test_returned_members_are_a_snapshot() -> None:
    roster = LocalRoster()
    roster.join("bob")
    before = roster.members()
    roster.join("carol")
    assert list(before) == ["bob"]


def test_unknown_members_cannot_be_changed() -> None:
    roster = LocalRoster()
    roster.join("bob")
    with pytest.raises(UnknownRecipient, match="did you mean bob"):
        roster.set_state("bop", "idle")
    with pytest.raises(UnknownRecipient):
        roster.leave("zoe")


async def test_roster_file_is_shared_by_its_readers(tmp_path: Path) -> None:
    one, other = FileRoster(tmp_path / "roster.json"), FileRoster(tmp_path / "roster.json")
    assert one.members() == {}
    await one.join("bob")
    await other.join("carol")
    await other.set_state("bob", "idle")
    assert one.members() == other.members()
    assert one.members()["bob"] == Member(name="bob", incarnation=1, state="idle")
    await one.leave("bob")
    assert list(other.members()) == ["carol"]
    assert (await other.join("bob")).incarnation == 2
    assert one.path.stat().st_mode & 0o777 == 0o600
    assert msgspec.json.decode(one.path.read_bytes())["v"] == 1


async def test_unchanged_roster_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    roster = FileRoster(path)
    await roster.join("bob")
    before = roster.members()
    assert roster.members() is before
    await FileRoster(path).join("carol")
    assert list(roster.members()) == ["bob", "carol"]


async def test_every_one_of_many_quick_changes_is_noticed(tmp_path: Path) -> None:
    """A replacement within one clock tick may have the same inode, time and size as the file read before."""
    writer, reader = FileRoster(tmp_path / "roster.json"), FileRoster(tmp_path / "roster.json")
    await writer.join("bob")
    for _ in range(8):
        member = await writer.join("bob")
        assert reader.members()["bob"] == member


@pytest.mark.slow
def test_concurrent_processes_lose_no_roster_update(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    command = [sys.executable, "-P", "-c", JOIN_MANY, str(path)]
    processes = [subprocess.Popen([*command, prefix]) for prefix in ("a", "b", "c")]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    members = FileRoster(path).members()
    assert sorted(members) == [f"{prefix}-{n}" for prefix in "abc" for n in range(1, 5)] + ["shared"]
    assert members["shared"].incarnation == 15
    assert {member.state for name, member in members.items() if name != "shared"} == {"idle"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a valid roster"),
        (b"{", "not a valid roster"),
        (b"\xff", "not a valid roster"),
        (b'{"x":' + b"[" * 100_000, "nested too deeply"),
        (b"[1]", "Expected `object`"),
        (b'{"v":2,"members":{},"starts":{}}', "version 2; this program reads 1"),
        (b'{"v":1,"members":{"bob":{"name":"eve","incarnation":1}},"starts":{"bob":1}}', "contradicts"),
        (b'{"v":1,"members":{"bob":{"name":"bob","incarnation":2}},"starts":{"bob":1}}', "contradicts"),
        (b'{"v":1,"members":{"bob":{"name":"bob","incarnation":1,"state":"asleep"}},"starts":{"bob":1}}', "asleep"),
    ],
)
async def test_damaged_roster_is_refused_and_left_unchanged(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "roster.json"
    path.write_bytes(content)
    roster = FileRoster(path)
    with pytest.raises(RosterFailed, match=reason):
        roster.members()
    with pytest.raises(RosterFailed, match="was left unchanged"):
        await roster.join("bob")
    assert path.read_bytes() == content


async def test_deleted_roster_does_not_restart_incarnations(tmp_path: Path) -> None:
    roster = FileRoster(tmp_path / "roster.json")
    await roster.join("bob")
    roster.members()
    roster.path.unlink()
    with pytest.raises(RosterFailed, match="was deleted"):
        await roster.join("bob")


@pytest.mark.parametrize("fault", ["torn", "full", "fsync", "rename"])
async def test_roster_is_unchanged_when_writing_fails(tmp_path: Path, fault: str) -> None:
    roster = FileRoster(tmp_path / "roster.json")
    await roster.join("bob")
    with (
        file_faults(SeededFaults.from_mapping({"seed": 1, fault: 1.0})),
        pytest.raises(RosterFailed, match="cannot be changed"),
    ):
        await roster.join("carol")
    assert list(roster.members()) == ["bob"]


async def test_roster_lock_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster_module, "LOCK_TIMEOUT", 0.0)
    path = tmp_path / "roster.json"
    with FileLock(f"{path}.lock", thread_local=False), pytest.raises(RosterFailed, match="held its lock"):
        await FileRoster(path).join("bob")


@settings(deadline=None)
@given(st.binary())
def test_garbage_raises_only_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        RosterState.from_bytes(data)
