"""Proposal of a dream: its change, and the hunks that need no approval."""

import attrs

from coterie.memory.dreaming.apply_hunks import auto_approved
from coterie.memory.dreaming.classify import KeptFacts, classify
from coterie.memory.dreaming.dream_change import DreamChange, RecallTest
from coterie.memory.dreaming.evidence import ReferenceExists, attach_evidence, parse_claims
from coterie.memory.dreaming.recall_check import WORST
from coterie.memory.dreaming.working_copy import StopCheck, WorkingCopy, never_stop, read_draft, read_texts, write_file
from coterie.memory.layer_settings import DeletionPolicy

DRY = "this was a dry run"


@attrs.frozen(kw_only=True)
class Proposal:
    """A change, and the hunks of it that are applied automatically."""

    change: DreamChange
    chosen: frozenset[int]

    def hold_back(self, reason: str) -> "Proposal":
        """Return the proposal without automatically applied hunks."""
        return Proposal(change=attrs.evolve(self.change, held=reason), chosen=frozenset())

    def add_evidence(self, copied: WorkingCopy, said: str, exists: ReferenceExists) -> "Proposal":
        """Return the proposal with evidence from the dream's answer *said* and its evidence file. Raises `OSError`."""
        written = copied.evidence.read_text("utf-8", "replace") if copied.evidence.is_file() else ""
        claims = parse_claims(f"{written}\n{said}")
        return attrs.evolve(self, change=attach_evidence(self.change, claims, exists))

    def add_recall_test(self, recall: RecallTest) -> "Proposal":
        """Return the proposal with the result of a recall test; held back if too much is lost."""
        proposal = attrs.evolve(self, change=attrs.evolve(self.change, recall=recall))
        if recall.share <= WORST:
            return proposal
        lost = recall.found - recall.kept
        return proposal.hold_back(f"{lost} of {recall.found} memories found by past queries would no longer be found")


def propose(
    copied: WorkingCopy, change: DreamChange, deletions: DeletionPolicy, check: StopCheck = never_stop
) -> Proposal:
    """Convert the edits of the working copy into hunks of *change*.

    The working copy then holds the memories as after the hunks that need no approval, or after all hunks if none is
    free of approval. Blocks. Raises `OSError` and the exceptions of *check*.
    """
    files, notes = read_draft(copied)
    kept = KeptFacts.of(read_texts(copied.base, check), files)
    change = attrs.evolve(change, files=tuple(classify(files, kept)), notes=tuple(notes))
    chosen = auto_approved(change, kept, deletions)
    shown = chosen or {hunk.number for hunk in change.hunks}
    for file in change.files:
        text = file.text(shown) or None
        write_file(copied.work / file.path, None if text is None else text.encode())
    return Proposal(change=change, chosen=frozenset(chosen))
