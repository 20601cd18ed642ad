"""A whole store under all checks."""

from collections.abc import Iterator
from pathlib import Path

import attrs

from coterie.memory.checking.claims import claims_of
from coterie.memory.checking.contradictions import contradiction_findings
from coterie.memory.checking.files import file_findings
from coterie.memory.checking.finding import Finding, Memory, Pollution, pollution_of
from coterie.memory.checking.index import index_findings
from coterie.memory.checking.project import absent_claims
from coterie.memory.checking.twins import twin_findings
from coterie.memory.errors import MemoryRefused
from coterie.memory.store.index import INDEX
from coterie.memory.store.store import Store
from coterie.memory.store.topic import read_topic
from coterie.memory.store.writing import LARGEST


@attrs.frozen(kw_only=True)
class Checked:
    """What a check came to."""

    findings: tuple[Finding, ...]
    """By file, the index last."""
    pollution: Pollution
    notes: tuple[str, ...]
    """What could not be checked, and why."""


def check_store(store: Store, project: Path | None) -> Checked:
    """Check all memories of *store*; what they say about files and symbols against *project*, if there is one.

    Changes nothing. Blocks on the disk. Raises `OSError` if the store's directory cannot be listed.
    """
    paths = store.paths()
    findings: list[Finding] = []
    memories = list(_read_all(store, paths, findings))
    for memory in memories:
        findings += file_findings(memory)
    findings += twin_findings(memories)
    findings += contradiction_findings(memories)
    claims = [claim for memory in memories for claim in claims_of(memory)] if project is not None else []
    absent = absent_claims(claims, project, [store.directory]) if project is not None else None
    for claim in absent.claims if absent is not None else ():
        reason = f"names `{claim.shown}`, which is nowhere in the project"
        findings.append(Finding(path=claim.path, line=claim.line, kind="dead_claim", reason=reason))
    findings += index_findings(store.index(), paths)
    return Checked(
        findings=tuple(sorted(findings, key=lambda found: (found.path == INDEX, found.path, found.line or 0))),
        pollution=pollution_of(paths, findings, absent.judged if absent is not None else 0),
        notes=() if absent is None or absent.note is None else (absent.note,),
    )


def _read_all(store: Store, paths: list[str], findings: list[Finding]) -> Iterator[Memory]:
    """The memories that can be read; of the others it is found why not."""
    for path in paths:
        try:
            content = store.read(path, limit=LARGEST + 1)
        except OSError as exc:
            findings.append(Finding(path=path, kind="unreadable", reason=f"cannot be read: {exc.strerror}"))
        except MemoryRefused as exc:
            findings.append(Finding(path=path, kind="unreadable", reason=exc.reason))
        else:
            # None: somebody has deleted it since it was listed.
            if content is not None:
                yield Memory(path=path, content=content, topic=read_topic(content, path))
