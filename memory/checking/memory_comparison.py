"""Comparison of memories with each other: contradictions, found by rules, and duplicates, found by common word runs.

The rules do not understand sentences. They find lines with the same key and different short values, such as
`test port: 80` and `test port: 81`, and advice that another memory negates, such as `use tabs` and `avoid tabs`.
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

from coterie.memory.checking.file_checks import prose_lines
from coterie.memory.checking.issue import CheckedMemory, StoreIssue

VALUE_WORDS = 5
"""Largest number of words in the value of `key: value` that is compared; a longer text is an explanation."""
KEY_WORDS = 6
_ITEM = re.compile(r"^\s*(?:[-*+]\s+|\d+[.)]\s+|#+\s+|>\s+)?")
_MARKS = re.compile(r"[*`\"']|(?<!\w)_|_(?!\w)")
_SETTING = re.compile(r"(?P<key>[\w .()/-]{3,60}?)\s*(?::|=|->)\s+(?P<value>\S.*)|(?P<key2>\w+)=(?P<value2>\S+)")
_IS = re.compile(r"(?:the\s+|our\s+|my\s+)?(?P<key>[\w -]{3,60}?)\s+(?:is|are)\s+(?P<value>\S.*)", re.IGNORECASE)
_EXACT = re.compile(r"(?:not\s+)?(?:[~<>=]*\d[\w.:/-]*(?:\s+\w+)?|[A-Z]\w*|\S*[_./:@]\S*|true|false|on|off|yes|no)")
"""Pattern of the Y in a sentence "X is Y" that is compared: a number, a name, a path, or a word like `true`."""
_ADVICE = re.compile(
    r"(?:please\s+)?(?P<word>always|never|do\s+not|don't|dont|avoid|use|prefer)\s+(?:use\s+|using\s+|to\s+)?(?P<rest>\S.*)",
    re.IGNORECASE,
)
_AGAINST = frozenset(("never", "do not", "don't", "dont", "avoid"))
_VAGUE = re.compile(
    r"\b(?:it|this|that|there|these|those|he|she|they|we|i|you|which|what|who|user|why|how to apply|note|example"
    r"|last|date|created|updated|status|author|source)\b",
    re.IGNORECASE,
)


def find_contradictions(memories: Sequence[CheckedMemory]) -> Iterator[StoreIssue]:
    """Yield an issue for each line that contradicts an earlier memory: another value for a key, or opposite advice."""
    known: dict[str, tuple[str, str, int, str]] = {}
    """Maps a subject, such as "api port", to value, path, line number and text of the first statement about it."""
    for memory in memories:
        for number, line in prose_lines(memory.entry.body, memory.body_line):
            shown = _ITEM.sub("", line).strip()
            if (statement := _read(_MARKS.sub("", shown).rstrip(" .!"))) is None:
                continue
            subject, value = statement
            first, path, at, said = known.setdefault(subject, (value, memory.path, number, shown[:80]))
            if path != memory.path and first != value:
                reason = f"says {shown[:80]!r}, but {path}:{at} says {said!r}; correct one of them"
                yield StoreIssue(path=memory.path, line=number, kind="contradiction", reason=reason)


def _read(text: str) -> tuple[str, str] | None:
    """Return subject and value of the statement in the line *text*, normalised for comparison; None if it has none.

    Examples: "api port" and "80" for `API port: 80`; "advice: tabs" and "do not" for `Avoid tabs`, "do" for `Use tabs`.
    """
    if advice := _ADVICE.fullmatch(text):
        word = " ".join(advice["word"].lower().split())
        return f"advice: {_plain(advice['rest'])}", "do not" if word in _AGAINST else "do"
    if setting := _SETTING.fullmatch(text):
        return _held(setting["key"] or setting["key2"], setting["value"] or setting["value2"])
    if (fact := _IS.fullmatch(text)) and _EXACT.fullmatch(fact["value"]):
        return _held(fact["key"], fact["value"])
    return None


def _held(key: str, value: str) -> tuple[str, str] | None:
    """Return *key* and *value*, normalised; None if the key is too short, long or vague, or the value too long."""
    subject = re.sub(r"^(?:the|our|my) ", "", _plain(key))
    words = len(subject.split())
    is_telling = 2 <= words <= KEY_WORDS or (words == 1 and "_" in key)
    if not is_telling or _VAGUE.search(subject) or len(value.split()) > VALUE_WORDS:
        return None
    return subject, _plain(value)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(" .,;:!")


SHINGLE = 4
"""Number of consecutive words in a shingle, the unit by which the bodies of two memories are compared."""
SKETCH = 64
"""Largest number of shingle hashes (hashes of word runs) that are kept to compare the body of one memory."""
SAME = 0.7
"""Share of common shingles (word runs), from 0 to 1, from which the bodies of two memories count as duplicates."""
CANDIDATES = 5
"""Largest number of earlier memories with which one memory is compared: those that share most word runs with it."""
NAMESAKES = 3
"""Largest number of memories with one name that counts as a contradiction; a name of more memories is too general."""
_WORDS = re.compile(r"\w+")


def find_duplicates(memories: Sequence[CheckedMemory]) -> Iterator[StoreIssue]:
    """Yield an issue for each memory whose body almost equals that of an earlier one, or whose name is the same.

    A memory is compared only with a few that share word runs with it, so the work grows linearly. The same name with
    another body and file name is a contradiction, or a front matter issue if over `NAMESAKES` memories have the name.
    """
    counts = Counter(_name(memory) for memory in memories)
    sketches: dict[str, frozenset[int]] = {}
    owners: dict[int, str] = {}
    """Maps the hash of a shingle (word run) to the path of the first memory that contains it."""
    names: dict[str, str] = {}
    for memory in memories:
        sketch = _sketch(memory.entry.body)
        similar = _find_similar(sketch, sketches, owners)
        namesake = names.setdefault(_name(memory), memory.path)
        if similar is not None:
            reason = f"says nearly the same as {similar}; delete one of them"
            yield StoreIssue(path=memory.path, kind="duplicate", reason=reason)
        elif _stem(namesake) != _stem(memory.path):
            shown, count = f"{memory.entry.name!r}", counts[_name(memory)]
            if count > NAMESAKES:
                reason = f"has the same name as {count - 1} other memories, {shown}; give it a name of its own"
                yield StoreIssue(path=memory.path, kind="front_matter", reason=reason)
            else:
                reason = f"has the same name as {namesake}, {shown}, but another text; rename or correct one"
                yield StoreIssue(path=memory.path, kind="contradiction", reason=reason)
        sketches[memory.path] = sketch
        for shingle in sketch:
            owners.setdefault(shingle, memory.path)


def _name(memory: CheckedMemory) -> str:
    return " ".join(memory.entry.name.casefold().split())


def _stem(path: str) -> str:
    # The directory is dropped: a memory without a name is named after its file, also in another directory.
    return path.rpartition("/")[2]


def _find_similar(sketch: frozenset[int], sketches: dict[str, frozenset[int]], owners: dict[int, str]) -> str | None:
    shared = Counter(owners[shingle] for shingle in sketch if shingle in owners)
    return next(
        (path for path, _ in shared.most_common(CANDIDATES) if _similarity(sketch, sketches[path]) >= SAME), None
    )


def _similarity(one: frozenset[int], other: frozenset[int]) -> float:
    """Estimate, from 0 to 1, the share of word runs that two bodies have in common, from their sketches (hash sets)."""
    # The smallest hashes of both sketches are a uniform sample of the union of both bodies.
    sample = sorted(one | other)[:SKETCH]
    return sum(shingle in one and shingle in other for shingle in sample) / len(sample) if sample else 0.0


def _sketch(body: str) -> frozenset[int]:
    """Return the sketch of *body* for comparison: the smallest hashes of its word runs; empty if it has no words."""
    words = _WORDS.findall(body.casefold())
    runs = {" ".join(words[at : at + SHINGLE]) for at in range(max(len(words) - SHINGLE + 1, min(len(words), 1)))}
    # Not `hash`, which differs between processes.
    return frozenset(sorted(zlib.crc32(run.encode("utf-8", "replace")) for run in runs)[:SKETCH])
