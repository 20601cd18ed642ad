"""Memories for tests, made from a few lines."""

from coterie.memory.checking.finding import Memory
from coterie.memory.store.topic import read_topic


def file_text(body: str, *, name: str = "A name", type_: str = "project") -> str:
    """A memory as it should be written."""
    return f"---\nname: {name}\ndescription: What {name} is about.\ntype: {type_}\n---\n\n{body}\n"


def memory(path: str, body: str, **facts: str) -> Memory:
    """A memory whose body begins in line 7."""
    content = file_text(body, **{"name": path.removesuffix(".md"), **facts}).encode()
    return Memory(path=path, content=content, topic=read_topic(content, path))


def raw_memory(content: bytes, path: str = "raw.md") -> Memory:
    """A memory of just these bytes."""
    return Memory(path=path, content=content, topic=read_topic(content, path))
