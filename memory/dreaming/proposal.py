"""Proposal of a dream (a model's consolidation of memories): hunks, their evidence, and those that need no approval.

The model names transcript lines as evidence; the program checks that each of them exists.
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

DRY = "the dream ran with --dry-run"
MOST = 10
"""Largest number of evidence references that one hunk keeps, and of notes about references to missing lines."""
_REFERENCE = re.compile(r"[\w.-]+/[\w.-]+:[0-9]{1,9}")
_PATH = re.compile(r"[\w./-]+\.md\b")


@attrs.frozen(kw_only=True)
class EvidenceClaim:
    """One line that the model wrote as evidence: a changed file, words of the changed text, and transcript lines."""

    path: str
    words: str
    """Words of the changed text, normalized by `comparison_key`, that show which hunks are meant; may be empty."""
    references: tuple[str, ...]


ReferenceExists = Callable[[str, str, int], bool]
"""Function of a session, an agent and a line number; returns True if the agent's transcript has that line."""


@attrs.frozen(kw_only=True)
class Proposal:
    """The change that a dream (memory consolidation) proposes, and the numbers of its hunks that need no approval."""

    change: DreamChange
    chosen: frozenset[int]

    def hold_back(self, reason: str) -> "Proposal":
        """Return a copy that applies no hunk automatically: all hunks wait for approval, and the user sees *reason*."""
        return Proposal(change=attrs.evolve(self.change, held=reason), chosen=frozenset())

    def add_evidence(self, copied: WorkingCopy, said: str, exists: ReferenceExists) -> "Proposal":
        """Return a copy with the evidence in *said*, the dream's answer, and `copied.evidence`. Raises `OSError`."""
        written = copied.evidence.read_text("utf-8", "replace") if copied.evidence.is_file() else ""
        claims = parse_claims(f"{written}\n{said}")
        return attrs.evolve(self, change=attach_evidence(self.change, claims, exists))

    def add_recall_test(self, recall: RecallTest) -> "Proposal":
        """Return a copy with *recall*; all hunks wait for approval if over 10 % of the memories are not found again."""
        proposal = attrs.evolve(self, change=attrs.evolve(self.change, recall=recall))
        if recall.share <= WORST:
            return proposal
        lost = recall.found - recall.kept
        return proposal.hold_back(f"{lost} of {recall.found} memories found by past queries would no longer be found")


def propose(
    copied: WorkingCopy, change: DreamChange, deletions: DeletionPolicy, check: StopCheck = never_stop
) -> Proposal:
    """Return the model's edits of the working copy *copied* as a proposal: hunks (line changes) added to *change*.

    For the recall test, rewrites the working copy with only the hunks that need no approval, or with all hunks if every
    hunk needs approval. Blocks. Raises `OSError` and the exceptions of *check*, which is called before each file.
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
    """Return the evidence in *text*: its lines of the form `file.md | words | session/agent:line`; never raises.

    Other lines and Markdown markup are ignored. The words may be missing, and a line may name several references.
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
    """Return *change* with the references of *claims* as evidence of its hunks; a reference to no line becomes a note.

    A claim applies to the hunks of its file that contain its words; if no hunk contains them, to all hunks of the file.
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
    notes = (*change.notes, *(f"evidence {name} was ignored: no such transcript line" for name in invented[:MOST]))
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
