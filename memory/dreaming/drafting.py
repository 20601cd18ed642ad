"""From a copy to a change: what the dream did, what kind each hunk is of, and which of them need no approval."""

import attrs

from coterie.memory.dreaming.applying import chosen_at_once
from coterie.memory.dreaming.change import Deletions, DreamChange, RecallTest
from coterie.memory.dreaming.copy import Check, Copied, go_on, put_text, read_draft, texts_in
from coterie.memory.dreaming.evidence import Exists, read_claims, with_evidence
from coterie.memory.dreaming.judging import Kept, classify
from coterie.memory.dreaming.recall_check import WORST

DRY = "this was a dry run"


@attrs.frozen(kw_only=True)
class Proposal:
    """A change, and the hunks of it that are to be applied at once."""

    change: DreamChange
    chosen: frozenset[int]

    def held(self, reason: str) -> "Proposal":
        """The same with nothing to be applied at once."""
        return Proposal(change=attrs.evolve(self.change, held=reason), chosen=frozenset())

    def justified(self, copied: Copied, said: str, exists: Exists) -> "Proposal":
        """The same with what the dream *said*, and wrote beside its copy, as evidence. Blocks. Raises `OSError`."""
        written = copied.evidence.read_text("utf-8", "replace") if copied.evidence.is_file() else ""
        claims = read_claims(f"{written}\n{said}")
        return attrs.evolve(self, change=with_evidence(self.change, claims, exists))

    def tested(self, recall: RecallTest) -> "Proposal":
        """The same with what a test of recall gave; held back if that is too bad."""
        proposal = attrs.evolve(self, change=attrs.evolve(self.change, recall=recall))
        if recall.share <= WORST:
            return proposal
        lost = recall.found - recall.kept
        return proposal.held(f"{lost} of {recall.found} memories that past queries found would not be found any more")


def propose(copied: Copied, change: DreamChange, deletions: Deletions, check: Check = go_on) -> Proposal:
    """What was done to the copy as hunks of *change*.

    The copy is then what the memory would be after the hunks that need no approval; if there are none, after all.
    Blocks. Raises `OSError` and what *check* raises.
    """
    draft = read_draft(copied)
    kept = Kept.of(texts_in(copied.base, check), draft.files)
    change = attrs.evolve(change, files=tuple(classify(draft.files, kept)), notes=draft.notes)
    chosen = chosen_at_once(change, kept, deletions)
    shown = chosen or {hunk.number for hunk in change.hunks}
    for file in change.files:
        put_text(copied.work, file.path, file.text(shown) or None)
    return Proposal(change=change, chosen=frozenset(chosen))
