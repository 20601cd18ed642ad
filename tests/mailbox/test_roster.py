from pathlib import Path

import msgspec
import pytest
import trio
from filelock import FileLock

from coterie.files import file_faults
from coterie.mailbox import roster as roster_module
from coterie.mailbox.contract import Member, MemberOrigin
from coterie.mailbox.errors import NameInvalid, UnknownRecipient
from coterie.mailbox.roster import FileRoster, LocalRoster, RosterFailed
from tests.seeded_faults import SeededFaults


def test_member_joins_leaves_and_joins_again_as_the_next_incarnation() -> None:
    roster = LocalRoster()
    assert [roster.join("Bob").incarnation for _ in range(2)] == [1, 2]
    with pytest.raises(NameInvalid, match="differs from 'Bob' only in case"):
        roster.join("bOB")
    with pytest.raises(UnknownRecipient, match="did you mean Bob"):
        roster.set_state("Bop", "idle")
    with pytest.raises(UnknownRecipient):
        roster.leave("zoe")
    before = roster.members()
    roster.leave("Bob")
    assert (list(before), roster.members()) == (["Bob"], {}), "what it returned is a snapshot"
    assert roster.join("bob") == Member(name="bob", incarnation=3), "in any case"


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
    one.path.unlink()
    with pytest.raises(RosterFailed, match="was deleted"):
        await other.join("bob")  # which would begin with its first incarnation again


async def test_roster_file_is_read_again_only_after_a_change(tmp_path: Path) -> None:
    """A replacement within one clock tick may have the same inode, time and size as the file read before."""
    writer, reader = FileRoster(tmp_path / "roster.json"), FileRoster(tmp_path / "roster.json")
    for _ in range(8):
        member = await writer.join("bob")
        assert reader.members()["bob"] == member
    assert reader.members() is reader.members()


async def test_concurrent_writers_lose_no_roster_update(tmp_path: Path) -> None:
    async def join_many(prefix: str) -> None:
        roster = FileRoster(tmp_path / "roster.json")
        for number in range(5):
            await roster.join(f"{prefix}-{number}")
            await roster.join("shared")
            await roster.set_state(f"{prefix}-{number}", "idle")
        await roster.leave(f"{prefix}-0")

    async with trio.open_nursery() as nursery:
        for prefix in "abc":
            nursery.start_soon(join_many, prefix)
    members = FileRoster(tmp_path / "roster.json").members()
    assert sorted(members) == [f"{prefix}-{n}" for prefix in "abc" for n in range(1, 5)] + ["shared"]
    assert members["shared"].incarnation == 15
    assert {member.state for name, member in members.items() if name != "shared"} == {"idle"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no valid roster"),
        (b"{", "no valid roster"),
        (b"\xff", "no valid roster"),
        (b'{"x":' + b"[" * 100_000, "nested too deeply"),
        (b"[1]", "Expected `object`"),
        (b'{"v":2,"members":{},"starts":{}}', "the roster has format version 2, not 1"),
        (b'{"v":1,"members":{"bob":{"name":"eve","incarnation":1}},"starts":{"bob":1}}', "has another name"),
        (b'{"v":1,"members":{"bob":{"name":"bob","incarnation":2}},"starts":{"bob":1}}', "wrong number of starts"),
        (b'{"v":1,"members":{"bob":{"name":"bob","incarnation":1,"state":"asleep"}},"starts":{"bob":1}}', "asleep"),
    ],
)
async def test_damaged_roster_is_refused_and_left_unchanged(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "roster.json"
    path.write_bytes(content)
    roster = FileRoster(path)
    with pytest.raises(RosterFailed, match=reason):
        roster.members()
    with pytest.raises(RosterFailed, match="start a new session"):
        await roster.join("bob")
    assert path.read_bytes() == content


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
    with FileLock(f"{path}.lock", thread_local=False), pytest.raises(RosterFailed, match="roster was locked"):
        await FileRoster(path).join("bob")
