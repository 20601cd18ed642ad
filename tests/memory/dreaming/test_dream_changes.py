"""Hunks of a dream that are applied automatically, and hunks that wait for approval."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from coterie.memory.dreaming.apply_hunks import CHANGED, TAKEN_BACK, reject_hunks
from coterie.memory.dreaming.dream_change import DreamChange, find_change, load_changes
from coterie.memory.dreaming.statements import facts_in, missing_facts
from coterie.memory.errors import DreamRefused
from tests.examples import examples
from tests.memory.dreaming.manual_dream import USER, ManualDream, states, topic

ANN = topic("ann", "Ann likes tea. She works in Ghent.")
BEN = topic("ben", "Ben likes coffee.")


def test_additions_and_merges_are_applied_automatically(tmp_path: Path) -> None:
    """Line ends, case, bullets and punctuation are ignored."""
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN, "ben.md": BEN})
    asleep.write("ben.md", f"{BEN}\n- ANN likes\n  tea!\n- She works in **Ghent**\n")
    asleep.write("ann.md", "")
    asleep.write("cy.md", topic("cy", "Cy draws."))
    change = asleep.apply_changes()
    assert states(change) == {
        "ann.md": [("merge", "applied")],
        "ben.md": [("addition", "applied")],
        "cy.md": [("addition", "applied")],
    }
    assert asleep.store.paths() == ["ben.md", "cy.md"]
    index = asleep.texts()["MEMORY.md"]
    assert ("ann.md" in index, "(cy.md)" in index) == (False, True)
    assert {(made.group, made.author.by) for made in asleep.store.changes()[-3:]} == {(change.group, "dream")}


WAITS = {"ann.md": [("deletion", "waiting")]}


@pytest.mark.parametrize(
    ("files", "edits", "expected"),
    [
        *(
            pytest.param({"ann.md": ANN}, {"ann.md": topic("ann", text)}, WAITS, id=text)
            for text in (
                "Never believe that Ann likes tea. She works in Ghent.",
                "Ann likes tea, not. She works in Ghent.",
                "Ann likes tea She works in Ghent.",
                "Ann likes C++. Ann likes tea2. She works in Ghent.",
            )
        ),
        # The store would remove the index line together with the file.
        pytest.param(
            {"ann.md": topic("ann", "Ann likes tea.", "Ann likes tea.")}, {"ann.md": ""}, WAITS, id="fact in the index"
        ),
        pytest.param(
            {"ann.md": ANN}, {"ann.md": "", "ann.txt": ANN, "logs/ann.md": ANN}, WAITS, id="moved to an invalid path"
        ),
        pytest.param(
            {"ann.md": topic("ann", "Ann likes tea.", "Ann's drinks")},
            {"ann.md": topic("ann", "Ann likes tea.", "Somebody, that is Ann's drinks")},
            {"ann.md": [("merge", "applied")]},
            id="description that only sums up",
        ),
        *(
            pytest.param(
                {"ann.md": text}, {"ann.md": text.replace("tion: ", "tion: Somebody, that is ")}, WAITS, id=text
            )
            for text in (topic("ann", "See above.", "Ann rows"), topic("ann", "Ann draws.", "Ann draws since 2019"))
        ),
    ],
)
def test_a_fact_that_no_memory_states_waits(
    tmp_path: Path, files: dict[str, str], edits: dict[str, str], expected: object
) -> None:
    asleep = ManualDream.of(tmp_path, files)
    (asleep.copied.work / "logs").mkdir()
    for path, text in edits.items():
        asleep.write(path, text)
    assert states(asleep.apply_changes()) == expected


def test_line_added_to_a_sentence_changes_the_sentence(tmp_path: Path) -> None:
    text = topic("rule", "Deploy\non Fridays.\n\nAsk first\n\nBe kind.\n\nRest.")
    asleep = ManualDream.of(tmp_path, {"rule.md": text})
    changed = text.replace("Deploy\n", "Deploy\nnever\n").replace("first\n", "first\nis wrong.\n")
    asleep.write("rule.md", f"{changed}\nSing.\n")
    fates = [("deletion", "waiting"), ("deletion", "waiting"), ("addition", "applied")]
    assert states(asleep.apply_changes()) == {"rule.md": fates}
    assert asleep.read("rule.md") == f"{text}\nSing.\n"


def test_nothing_is_lost_when_the_store_refuses_the_target(tmp_path: Path) -> None:
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN, "ben.md": BEN})
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    asleep.write("people.md", topic("people", f"Ann likes tea. She works in Ghent. Her key is {secret}"))
    asleep.write("ann.md", "")
    change = asleep.apply_changes()
    assert states(change) == {"ann.md": [("merge", "dropped")], "people.md": [("addition", "dropped")]}
    assert asleep.store.paths() == ["ann.md", "ben.md"]
    assert asleep.read("ann.md") == ANN
    assert change.files[0].hunks[0].reason == TAKEN_BACK


def test_only_the_deletions_of_a_file_wait(tmp_path: Path) -> None:
    text = topic("list", "One.\n\nTwo.\n\nThree.")
    asleep = ManualDream.of(tmp_path, {"list.md": text})
    asleep.write("list.md", topic("list", "Zero.\n\nOne.\n\nThree.\n\nFour."))
    change = asleep.apply_changes()
    assert sorted(hunk.kind for hunk in change.hunks if hunk.state == "applied") == ["addition", "addition"]
    assert asleep.read("list.md") == topic("list", "Zero.\n\nOne.\n\nTwo.\n\nThree.\n\nFour.")
    change = asleep.approve(change)
    assert asleep.read("list.md") == topic("list", "Zero.\n\nOne.\n\nThree.\n\nFour.")
    assert {hunk.state for hunk in change.hunks} == {"applied"}
    asleep.store.undo(change.group, USER)
    assert asleep.read("list.md") == text


def test_moved_text_waits_together_with_its_target(tmp_path: Path) -> None:
    """Ann's sentences replace Ben's; while Ben's may not be deleted, Ann's stay in their file."""
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN, "ben.md": BEN})
    asleep.write("ben.md", topic("ben", "Ann likes tea. She works in Ghent."))
    asleep.write("ann.md", "")
    change = asleep.apply_changes()
    assert states(change) == {"ann.md": [("merge", "waiting")], "ben.md": [("deletion", "waiting")]}
    assert (asleep.read("ann.md"), asleep.read("ben.md")) == (ANN, BEN)
    assert {hunk.state for hunk in asleep.approve(change).hunks} == {"applied"}
    assert asleep.store.paths() == ["ben.md"]


def test_hunk_is_dropped_when_its_file_has_changed(tmp_path: Path) -> None:
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN, "ben.md": BEN})
    asleep.write("ben.md", f"{BEN}Ann likes tea. She works in Ghent.\n")
    asleep.write("ann.md", "")
    asleep.write("cy.md", topic("cy", "Cy draws."))
    asleep.store.write("ben.md", f"{BEN}By hand.\n".encode(), USER, base=BEN.encode())
    change = asleep.apply_changes()
    assert states(change) == {
        "ann.md": [("merge", "waiting")],
        "ben.md": [("addition", "dropped")],
        "cy.md": [("addition", "applied")],
    }
    assert change.files[1].hunks[0].reason == CHANGED
    assert asleep.read("ann.md") == ANN
    assert asleep.read("ben.md") == f"{BEN}By hand.\n"


def test_approved_hunk_is_dropped_when_its_file_has_changed(tmp_path: Path) -> None:
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN, "ben.md": BEN})
    asleep.write("ann.md", ANN.replace(" She works in Ghent.", ""))
    asleep.write("ben.md", "")
    change = asleep.apply_changes()
    assert states(change) == {"ann.md": [("deletion", "waiting")], "ben.md": [("deletion", "waiting")]}
    assert [hunk.lost for hunk in change.hunks] == [("She works in Ghent.",), ("Ben likes coffee.",)]
    assert (asleep.read("ann.md"), asleep.read("ben.md")) == (ANN, BEN)
    asleep.store.write("ann.md", f"{ANN}More.\n".encode(), USER, base=ANN.encode())
    change = asleep.approve(find_change(asleep.store.directory, None))
    assert states(change) == {"ann.md": [("deletion", "dropped")], "ben.md": [("deletion", "applied")]}
    assert asleep.store.paths() == ["ann.md"]


def test_rejected_hunk_is_never_applied_and_a_policy_may_apply_deletions(tmp_path: Path) -> None:
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN, "ben.md": BEN})
    asleep.write("ann.md", "")
    change = reject_hunks(asleep.store, asleep.apply_changes())
    assert {hunk.state for hunk in asleep.approve(change).hunks} == {"rejected"}
    assert asleep.read("ann.md") == ANN
    with pytest.raises(DreamRefused, match="waits for approval"):
        find_change(asleep.store.directory, None)
    assert states(asleep.apply_changes("apply")) == {"ann.md": [("deletion", "applied")]}
    assert asleep.store.paths() == ["ben.md"]


def test_index_line_stays_as_long_as_its_memory(tmp_path: Path) -> None:
    asleep = ManualDream.of(tmp_path, {"MEMORY.md": "Notes.\n", "ann.md": ANN, "ben.md": BEN})
    before, rewritten = asleep.texts()["MEMORY.md"], "Notes.\n- [Ann](ann.md) \u2014 tea\n"
    asleep.write("MEMORY.md", rewritten)
    change = asleep.apply_changes()
    assert ("deletion", "waiting") in [(hunk.kind, hunk.state) for hunk in change.hunks]
    assert "(ben.md)" in asleep.texts()["MEMORY.md"]
    asleep.approve(change)
    assert asleep.texts()["MEMORY.md"] == rewritten
    asleep.store.undo(change.group, USER)
    assert asleep.texts()["MEMORY.md"] == before


def test_logs_binary_and_other_files_are_neither_copied_nor_changed(tmp_path: Path) -> None:
    log = "logs/2026/11/2026-11-16.md"
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/kept.md").write_bytes(b"\xff\0\xfe")
    (tmp_path / "memory/link.md").symlink_to("/etc/passwd")
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN})
    asleep.store.append(log, b"Ann called.\n", USER)
    assert sorted(path.name for path in asleep.copied.work.iterdir()) == ["MEMORY.md", "ann.md"]
    again = ManualDream.of(tmp_path / "again", {"ann.md": ANN, log: "Ann called.\n"})
    assert (again.copied.work / log).read_text() == "Ann called.\n"
    again.write(log, "")
    again.write("notes.txt", "x")
    (again.copied.work / "raw.md").write_bytes(b"\xff\0")
    (again.copied.work / "link.md").symlink_to(asleep.store.directory / "ann.md")
    change = again.apply_changes()
    assert not change.files
    assert sorted(note.partition(" ")[0] for note in change.notes) == [log, "notes.txt", "raw.md"]


def test_evidence_is_attached_to_its_hunks_and_checked(tmp_path: Path) -> None:
    asleep = ManualDream.of(tmp_path, {"list.md": topic("list", "One.\n\nTwo.\n\nThree.")})
    asleep.write("list.md", topic("list", "Zero.\n\nOne.\n\nTwo.\n\nThree.\n\nFour."))
    asleep.copied.evidence.write_text("prose\n- `list.md` | zero | s1/main:7, s9/main:3\n")
    change = asleep.propose("1. list.md: s1/main:12\nother.md s1/main:9").change
    assert [hunk.evidence for hunk in change.hunks] == [("s1/main:7", "s1/main:12"), ("s1/main:12",)]
    assert change.notes == ("the evidence names a line that does not exist: s9/main:3",)


def test_change_survives_a_round_trip_and_damage_is_skipped(tmp_path: Path) -> None:
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN})
    asleep.write("ann.md", "")
    change = asleep.apply_changes()
    assert DreamChange.from_bytes(change.to_bytes()) == change
    kept = asleep.store.directory / ".history" / "dreams"
    (kept / "20260101-000000-abcd.json").write_bytes(b"{")
    assert [found.id for found in load_changes(asleep.store.directory)] == [change.id]
    with pytest.raises(DreamRefused, match="the newest is"):
        find_change(asleep.store.directory, "1999")
    assert find_change(asleep.store.directory, change.group) == change


WORDS = ["Ann likes tea.", "Ben rows.", "Cy draws.", "Di sings.", "Eve codes.", "Flo bakes.", "No.", "- Gus runs"]
BODIES = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join) | st.lists(st.sampled_from(WORDS)).map("\n".join)
FILES = st.dictionaries(st.sampled_from(["a.md", "b.md", "c.md", "d.md"]), BODIES, min_size=1)


@pytest.mark.slow
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=FILES, after=FILES)
def test_no_sentence_is_lost_without_approval(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, str], after: dict[str, str]
) -> None:
    files = {path: topic(path, body) for path, body in before.items()}
    asleep = ManualDream.of(tmp_path_factory.mktemp("dream"), files)
    for path in before.keys() | after.keys():
        asleep.write(path, topic(path, after[path]) if path in after else "")
    change = asleep.apply_changes()
    texts = asleep.texts()
    now = {said.key for path, text in texts.items() for said in facts_in(path, text)}
    was = {said.key for path, text in files.items() for said in missing_facts(path, text)}
    assert was <= now
    asleep.approve(change)
    wanted = {path: topic(path, body) for path, body in after.items()}
    assert {path: text for path, text in asleep.texts().items() if path != "MEMORY.md"} == wanted
