"""Stores for recall: real chats with questions as memory files, and a large one made of their words."""

import datetime as dt
import gzip
import itertools
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

from benchmarks.recall_peers import simple_tokens

DATA = Path(__file__).parents[2] / "shared" / "data" / "recall"
SET = "longmemeval3"
SEED = 7


@attrs.frozen(kw_only=True)
class Memory:
    """A row of the data set."""

    id: str
    name: str
    description: str
    type: str
    mtime: str
    text: str

    @property
    def full_text(self) -> str:
        """All searchable text."""
        return f"{self.name}\n{self.description}\n{self.text}"

    def write(self, directory: Path) -> None:
        """Write it as a memory file with its age."""
        path = directory / f"{self.id}.md"
        description = msgspec.json.encode(self.description).decode()
        head = f"---\nname: {self.name}\ndescription: {description}\ntype: {self.type}\n---\n"
        path.write_text(f"{head}{self.text}\n", encoding="utf-8")
        at = dt.datetime.fromisoformat(self.mtime).replace(tzinfo=dt.UTC).timestamp()
        os.utime(path, (at, at))


@attrs.frozen(kw_only=True)
class Question:
    """A query, and the memories that answer it."""

    query: str
    gold: frozenset[str]

    def found(self, ids: Sequence[str]) -> float:
        """Return the share of the answers that is in *ids*."""
        return len(self.gold.intersection(ids)) / len(self.gold)


@attrs.frozen(kw_only=True)
class Corpus:
    """One store of the data set, with its queries."""

    memories: tuple[Memory, ...]
    questions: tuple[Question, ...]


def load_corpora() -> list[Corpus]:
    """Return all stores of the data set; none if the data is missing."""
    documents, queries = (DATA / f"{SET}.{part}.jsonl.gz" for part in ("docs", "queries"))
    if not (documents.exists() and queries.exists()):
        return []
    memories, questions = defaultdict(list), defaultdict(list)
    for row in _rows(documents):
        fields = {field.name: row[field.name] for field in attrs.fields(Memory)}
        memories[row["store"]].append(Memory(**fields))
    for row in _rows(queries):
        questions[row["store"]].append(Question(query=row["query"], gold=frozenset(row["gold"])))
    return [Corpus(memories=tuple(memories[store]), questions=tuple(questions[store])) for store in memories]


def write_large_store(directory: Path, count: int, corpora: Sequence[Corpus], words: int = 150) -> None:
    """Write *count* files of about this many words, drawn with the word frequencies of the corpus; deterministic."""
    chance = random.Random(SEED)
    texts = [memory.text for corpus in corpora for memory in corpus.memories]
    vocabulary = list(itertools.chain.from_iterable(map(simple_tokens, texts)))
    for number in range(count):
        body = " ".join(chance.choices(vocabulary, k=chance.randint(words // 2, words * 3 // 2)))
        name, description = " ".join(chance.choices(vocabulary, k=3)), " ".join(chance.choices(vocabulary, k=12))
        head = f"---\nname: {name}\ndescription: {description}\ntype: project\n---\n"
        (directory / f"memory-{number:05}.md").write_text(f"{head}{body}\n", encoding="utf-8")


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rb") as lines:
        yield from map(msgspec.json.decode, lines)
