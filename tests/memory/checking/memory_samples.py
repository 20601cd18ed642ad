"""Sample memories made from a few lines."""

from coterie.memory.checking.issue import CheckedMemory
from coterie.memory.store.memory_entry import parse_entry


def file_text(body: str, *, name: str = "A name", type_: str = "project") -> str:
    """Return the text of a valid memory file."""
    return f"---\nname: {name}\ndescription: What {name} is about.\ntype: {type_}\n---\n\n{body}\n"


def memory(path: str, body: str, **facts: str) -> CheckedMemory:
    """Return a memory whose body begins in line 7."""
    content = file_text(body, **{"name": path.removesuffix(".md"), **facts}).encode()
    return CheckedMemory(path=path, content=content, entry=parse_entry(content, path))


def raw_memory(content: bytes, path: str = "raw.md") -> CheckedMemory:
    """Return a memory with exactly these bytes."""
    return CheckedMemory(path=path, content=content, entry=parse_entry(content, path))
