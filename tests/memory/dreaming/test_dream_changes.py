"""Comparison of sentences; hunks of a dream that are applied or wait for approval; the recall after a dream."""

from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from coterie.clock import Clock
from coterie.memory.dreaming.apply_hunks import CHANGED, TAKEN_BACK, apply_hunks, reject_hunks
from coterie.memory.dreaming.dream_change import DreamChange, find_change, load_changes, new_dream_id
from coterie.memory.dreaming.proposal import Proposal, propose
from coterie.memory.dreaming.recall_check import compare_recall
from coterie.memory.dreaming.statements import comparison_key, facts_in, missing_facts, split_lines, split_sentences
from coterie.memory.dreaming.working_copy import WorkingCopy, copy_store, write_file
from coterie.memory.errors import DreamRefused
from coterie.memory.layer_settings import DeletionPolicy
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore
from tests.examples import examples


def keys(text: str) -> list[str]:
    return [sentence.key for sentence in split_sentences(split_lines(text))]


@pytest.mark.parametrize(
    "text",
    [
        "Ann likes tea. Ben rows!",
        "# Ann likes tea\n\n1. Ben rows",
        "- **Ann** likes\n  tea\n- `Ben` rows",
        "> Ann   LIKES tea; ben rows",
        "| Ann likes tea |\n| Ben rows |",
        "```\nAnn likes tea\nBen rows\n```",
        "Ann likes tea\n===\n\nBen rows...",
    ],
)
def test_equal_sentences_have_equal_keys(text: str) -> None:
    assert keys(text) == ["ann likes tea", "ben rows"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It takes <5 ms", "It takes >5 ms"),
        ("a == b", "a != b"),
        ("Use C", "Use C++"),
        ("Edit .env", "Edit env"),
        ("Call _load", "Call load"),
        ("- [ ] Ship it", "- [x] Ship it"),
        ("It is -5", "It is 5"),
        ("Version 1.5", "Version 15"),
        ("Do it", "Do not do it"),
    ],
)
def test_meaningful_symbols_change_the_key(one: str, other: str) -> None:
    assert keys(one) != keys(other)


def test_sentences_without_spaces_are_split() -> None:
    assert keys("猫がいる。犬がいる。") == ["猫がいる", "犬がいる"]


def test_sentence_has_its_lines() -> None:
    found = list(split_sentences(split_lines("One two\nthree. Four\n\nfive.\n"), 10))
    assert [(each.key, each.first, each.last) for each in found] == [
        ("one two three", 10, 11),
        ("four", 11, 11),
        ("five", 13, 13),
    ]


@given(st.text(alphabet="ab .!\n-#>`|1)\u3002", max_size=60))
def test_sentences_contain_all_words_of_a_text(text: str) -> None:
    lines = split_lines(text)
    found = list(split_sentences(lines))
    assert all(0 <= each.first <= each.last < len(lines) for each in found)
    said = "".join(each.key for each in found)
    assert [sign for sign in text if sign in "ab"] == [sign for sign in said if sign in "ab"]
    assert all(comparison_key(each.text) == each.key for each in found)


USER = Author(by="user")


def topic(name: str, body: str, description: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description or name}\ntype: project\n---\n{body}\n"


@attrs.frozen(kw_only=True)
class ManualDream:
    """A running dream."""

    store: MemoryStore
    copied: WorkingCopy
    clock: Clock

    @classmethod
    def of(cls, directory: Path, files: dict[str, str], edits: dict[str, str] | None = None) -> "ManualDream":
        """Create a store with *files*, and its working copy with *edits*; an empty text deletes a file."""
        clock = Clock()
        store = MemoryStore.at(directory / "memory", clock)
        for path, text in files.items():
            store.write(path, text.encode(), USER, base=store.read(path))
        scratch = directory / "scratch"
        scratch.mkdir(parents=True)
        asleep = cls(store=store, copied=copy_store(store, scratch), clock=clock)
        for path, text in (edits or {}).items():
            asleep.write(path, text)
        return asleep

    def write(self, path: str, text: str) -> None:
        """Write a file of the working copy, as the model would."""
        write_file(self.copied.work / path, text.encode())

    def read(self, path: str) -> str | None:
        """Read a file of the store."""
        content = self.store.read(path)
        return None if content is None else content.decode()

    def propose(self, said: str = "", deletions: DeletionPolicy = "ask") -> Proposal:
        """Return the proposal without applying it."""
        change = DreamChange(id=new_dream_id(self.clock), at=self.clock.now())
        proposal = propose(self.copied, change, deletions)
        return proposal.add_evidence(self.copied, said, lambda session, _agent, line: session == "s1" and line < 100)

    def apply_changes(self, deletions: DeletionPolicy = "ask") -> DreamChange:
        """Apply the hunks that need no approval."""
        proposal = self.propose(deletions=deletions)
        return apply_hunks(self.store, proposal.change, proposal.chosen, Author(by="dream"))

    def approve(self, change: DreamChange) -> DreamChange:
        """Apply all waiting hunks."""
        return apply_hunks(self.store, change, {hunk.number for hunk in change.hunks}, USER)

    def texts(self) -> dict[str, str]:
        """Return all memories and the index."""
        return {path: self.read(path) or "" for path in ("MEMORY.md", *self.store.paths())}


def states(change: DreamChange) -> dict[str, list[tuple[str, str]]]:
    """Return type and state of each hunk by file."""
    return {file.path: [(hunk.kind, hunk.state) for hunk in file.hunks] for file in change.files}


ANN = topic("ann", "Ann likes tea. She works in Ghent.")
BEN = topic("ben", "Ben likes coffee.")


def test_additions_and_merges_are_applied_automatically(tmp_path: Path) -> None:
    """Line ends, case, bullets and punctuation are ignored."""
    merged = f"{BEN}\n- ANN likes\n  tea!\n- She works in **Ghent**\n"
    edits = {"ben.md": merged, "ann.md": "", "cy.md": topic("cy", "Cy draws.")}
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN, "ben.md": BEN}, edits)
    change = asleep.apply_changes()
    assert states(change) == {
        "ann.md": [("merge", "applied")],
        "ben.md": [("addition", "applied")],
        "cy.md": [("addition", "applied")],
    }
    assert asleep.store.paths() == ["ben.md", "cy.md"]
    assert [name in asleep.texts()["MEMORY.md"] for name in ("(ann.md)", "(cy.md)")] == [False, True]
    assert {(made.group, made.author.by) for made in asleep.store.changes()[-3:]} == {(change.group, "dream")}


REWORDED = [
    "Never believe that Ann likes tea. She works in Ghent.",
    "Ann likes tea, not. She works in Ghent.",
    "Ann likes tea She works in Ghent.",
    "Ann likes C++. Ann likes tea2. She works in Ghent.",
]
DESCRIBED = [topic("ann", "See above.", "Ann rows"), topic("ann", "Ann draws.", "Ann draws since 2019")]
MOVED_AWAY = {"ann.md": "", "ann.txt": ANN, "logs/ann.md": ANN}


@pytest.mark.parametrize(
    ("text", "edits"),
    [
        *((ANN, {"ann.md": topic("ann", text)}) for text in REWORDED),
        *((text, {"ann.md": text.replace("tion: ", "tion: Somebody, that is ")}) for text in DESCRIBED),
        # The store would remove the index line together with the file.
        pytest.param(topic("ann", "Ann likes tea.", "Ann likes tea."), {"ann.md": ""}, id="fact in the index"),
        pytest.param(ANN, MOVED_AWAY, id="moved to an invalid path"),
    ],
)
def test_a_fact_that_no_memory_states_waits(tmp_path: Path, text: str, edits: dict[str, str]) -> None:
    asleep = ManualDream.of(tmp_path, {"ann.md": text})
    (asleep.copied.work / "logs").mkdir()
    for path, edited in edits.items():
        asleep.write(path, edited)
    assert states(asleep.apply_changes()) == {"ann.md": [("deletion", "waiting")]}


def test_description_that_only_sums_up_may_change(tmp_path: Path) -> None:
    before, after = (topic("ann", "Ann likes tea.", about) for about in ("Ann's drinks", "What Ann's drinks are"))
    asleep = ManualDream.of(tmp_path, {"ann.md": before}, {"ann.md": after})
    assert states(asleep.apply_changes()) == {"ann.md": [("merge", "applied")]}


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


def test_moved_text_waits_together_with_its_target(tmp_path: Path) -> None:
    """Ann's sentences replace Ben's; while Ben's may not be deleted, Ann's stay in their file."""
    asleep = ManualDream.of(
        tmp_path,
        {"ann.md": ANN, "ben.md": BEN},
        {"ben.md": topic("ben", "Ann likes tea. She works in Ghent."), "ann.md": ""},
    )
    change = asleep.apply_changes()
    assert states(change) == {"ann.md": [("merge", "waiting")], "ben.md": [("deletion", "waiting")]}
    assert (asleep.read("ann.md"), asleep.read("ben.md")) == (ANN, BEN)
    assert {hunk.state for hunk in asleep.approve(change).hunks} == {"applied"}
    assert asleep.store.paths() == ["ben.md"]


def test_hunk_is_dropped_when_its_file_has_changed(tmp_path: Path) -> None:
    asleep = ManualDream.of(
        tmp_path,
        {"ann.md": ANN, "ben.md": BEN},
        {"ben.md": f"{BEN}Ann likes tea. She works in Ghent.\n", "ann.md": "", "cy.md": topic("cy", "Cy draws.")},
    )
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
    asleep = ManualDream.of(
        tmp_path, {"ann.md": ANN, "ben.md": BEN}, {"ann.md": ANN.replace(" She works in Ghent.", ""), "ben.md": ""}
    )
    change = asleep.apply_changes()
    assert states(change) == {"ann.md": [("deletion", "waiting")], "ben.md": [("deletion", "waiting")]}
    assert [hunk.lost for hunk in change.hunks] == [("She works in Ghent.",), ("Ben likes coffee.",)]
    assert (asleep.read("ann.md"), asleep.read("ben.md")) == (ANN, BEN)
    asleep.store.write("ann.md", f"{ANN}More.\n".encode(), USER, base=ANN.encode())
    change = asleep.approve(find_change(asleep.store.directory, None))
    assert states(change) == {"ann.md": [("deletion", "dropped")], "ben.md": [("deletion", "applied")]}
    assert asleep.store.paths() == ["ann.md"]


def test_rejected_hunk_is_never_applied_and_a_policy_may_apply_deletions(tmp_path: Path) -> None:
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN, "ben.md": BEN}, {"ann.md": ""})
    change = reject_hunks(asleep.store, asleep.apply_changes())
    assert {hunk.state for hunk in asleep.approve(change).hunks} == {"rejected"}
    assert asleep.read("ann.md") == ANN
    with pytest.raises(DreamRefused, match="waits for approval"):
        find_change(asleep.store.directory, None)
    assert states(asleep.apply_changes("apply")) == {"ann.md": [("deletion", "applied")]}
    assert asleep.store.paths() == ["ben.md"]


def test_index_line_stays_as_long_as_its_memory(tmp_path: Path) -> None:
    rewritten = "Notes.\n- [Ann](ann.md) \u2014 tea\n"
    files = {"MEMORY.md": "Notes.\n", "ann.md": ANN, "ben.md": BEN}
    asleep = ManualDream.of(tmp_path, files, {"MEMORY.md": rewritten})
    before = asleep.texts()["MEMORY.md"]
    change = asleep.apply_changes()
    assert ("deletion", "waiting") in [(hunk.kind, hunk.state) for hunk in change.hunks]
    assert "(ben.md)" in asleep.texts()["MEMORY.md"]
    asleep.approve(change)
    assert asleep.texts()["MEMORY.md"] == rewritten
    asleep.store.undo(change.group, USER)
    assert asleep.texts()["MEMORY.md"] == before


def test_rewritten_index_is_applied_with_the_files(tmp_path: Path) -> None:
    index = "- [People](people.md) \u2014 all of them\n"
    people = topic("people", "Ann likes tea. She works in Ghent. Ben likes coffee.")
    edits = {"people.md": people, "ann.md": "", "ben.md": "", "MEMORY.md": index}
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN, "ben.md": BEN}, edits)
    assert {hunk.state for hunk in asleep.apply_changes().hunks} == {"applied"}
    assert asleep.texts() == {"MEMORY.md": index, "people.md": people}


def test_logs_binary_and_other_files_are_neither_copied_nor_changed(tmp_path: Path) -> None:
    log = "logs/2026/11/2026-11-16.md"
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/kept.md").write_bytes(b"\xff\0\xfe")
    (tmp_path / "memory/link.md").symlink_to("/etc/passwd")
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN})
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
    asleep = ManualDream.of(
        tmp_path,
        {"list.md": topic("list", "One.\n\nTwo.\n\nThree.")},
        {"list.md": topic("list", "Zero.\n\nOne.\n\nTwo.\n\nThree.\n\nFour.")},
    )
    asleep.copied.evidence.write_text("prose\n- `list.md` | zero | s1/main:7, s9/main:3\n")
    change = asleep.propose("1. list.md: s1/main:12\nother.md s1/main:9").change
    assert [hunk.evidence for hunk in change.hunks] == [("s1/main:7", "s1/main:12"), ("s1/main:12",)]
    assert change.notes == ("evidence s9/main:3 was ignored: no such transcript line",)


def test_change_survives_a_round_trip_and_damage_is_skipped(tmp_path: Path) -> None:
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN}, {"ann.md": ""})
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


@pytest.mark.parametrize("deletions", ["apply", "ask"])
def test_deleted_memory_is_not_found(tmp_path: Path, deletions: DeletionPolicy) -> None:
    """Waiting hunks are tested as if approved."""
    port = topic("port", "The server listens on port 8080.")
    asleep = ManualDream.of(tmp_path, {"ann.md": ANN, "port.md": port}, {"port.md": ""})
    proposal = asleep.propose(deletions=deletions)
    tested = compare_recall(asleep.copied, ["which port does the server have?"])
    assert tested.lost == ("which port does the server have? -> port.md",)
    assert tested.share > 0.1
    held = proposal.add_recall_test(tested)
    assert held.change.held is not None
    assert not held.chosen
