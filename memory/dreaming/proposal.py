"""Proposal of a dream: its change, the evidence for it, and the hunks that need no approval.

The model names transcript lines as evidence; each line is checked to exist.
"""

import re
from collections.abc import Callable, Sequence

import attrs

from coterie.memory.dreaming.apply_hunks import auto_approved
from coterie.memory.dreaming.classify import KeptFacts, classify
from coterie.memory.dreaming.dream_change import DreamChange, RecallTest
from coterie.memory.dreaming.hunks import DreamFile, Hunk
from coterie.memory.dreaming.recall_check import WORST
from coterie.memory.dreaming.statements import comparison_key
from coterie.memory.dreaming.working_copy import StopCheck, WorkingCopy, never_stop, read_draft, read_texts, write_file
from coterie.memory.layer_settings import DeletionPolicy

DRY = "this was a dry run"
MOST = 10
"""Largest number of transcript references of one hunk."""
_REFERENCE = re.compile(r"[\w.-]+/[\w.-]+:[0-9]{1,9}")
_PATH = re.compile(r"[\w./-]+\.md\b")


@attrs.frozen(kw_only=True)
class EvidenceClaim:
    """One line of evidence: transcript lines that justify a change."""

    path: str
    words: str
    """Words of the changed text, normalised by `comparison_key`; may be empty."""
    references: tuple[str, ...]


ReferenceExists = Callable[[str, str, int], bool]
"""Returns True if a session has an agent whose transcript has the given line."""


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


def parse_claims(text: str) -> list[EvidenceClaim]:
    """Parse the lines of *text* that look like `file.md | words | session/agent:line`; never raises.

    Markup is ignored, the words may be missing, and a line may have several references.
    """
    claims: list[EvidenceClaim] = []
    for line in text.splitlines():
        references = tuple(dict.fromkeys(match[0] for match in _REFERENCE.finditer(line)))
        rest = _REFERENCE.sub(" ", line)
        if references and (path := _PATH.search(rest)):
            words = comparison_key(rest[path.end() :].strip(" |:`*,\u2014-"))
            claims.append(EvidenceClaim(path=path[0].removeprefix("./"), words=words, references=references))
    return claims


def attach_evidence(change: DreamChange, claims: Sequence[EvidenceClaim], exists: ReferenceExists) -> DreamChange:
    """Add the existing references of *claims* to the hunks of *change*.

    A claim with words applies to the hunks that contain them, if there are any, otherwise to all hunks of its file.
    """
    checked: dict[str, bool] = {}
    for name in (name for claim in claims for name in claim.references):
        session, agent, line = re.split("[/:]", name)
        checked[name] = exists(session, agent, int(line))
    files = (
        attrs.evolve(file, hunks=tuple(_justified(file, hunk, claims, checked) for hunk in file.hunks))
        for file in change.files
    )
    invented = [name for name, is_there in checked.items() if not is_there]
    notes = (*change.notes, *(f"the evidence names a line that does not exist: {name}" for name in invented[:MOST]))
    return attrs.evolve(change, files=tuple(files), notes=notes)


def _justified(file: DreamFile, hunk: Hunk, claims: Sequence[EvidenceClaim], checked: dict[str, bool]) -> Hunk:
    ours = [claim for claim in claims if file.path == claim.path or claim.path.endswith(f"/{file.path}")]
    named = [claim for claim in ours if claim.words and claim.words in _hunk_text(hunk)]
    general = [
        claim for claim in ours if not any(claim.words and claim.words in _hunk_text(other) for other in file.hunks)
    ]
    found = dict.fromkeys(name for claim in (*named, *general) for name in claim.references if checked[name])
    return attrs.evolve(hunk, evidence=tuple(found)[:MOST])


def _hunk_text(hunk: Hunk) -> str:
    return comparison_key(" ".join((*hunk.added, *hunk.removed)))
