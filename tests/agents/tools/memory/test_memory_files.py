"""Tests of Write and Edit on memories."""

import os
import unicodedata
from pathlib import Path

import pytest

from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import Rule
from coterie.agents.permissions.types import Allowed, Denied, Mode, NeedsPrompt
from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.files.read import Read, ReadInput
from coterie.agents.tools.files.write import Write, WriteInput
from coterie.agents.tools.tool import ToolResult, Workspace, call_tool
from coterie.agents.tools.workspace.file_change import WritableMemory
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_store import MemoryStore

ME = Author(by="agent", agent="main", session="s", turn=3, why="told to")
SOMEBODY = Author(by="agent", agent="other")
TOOLS = {tool.name: tool for tool in (Read(), Write(), Edit())}


class MemoryWorkspace:
    """An agent with one memory store outside of its project."""

    def __init__(self, directory: Path) -> None:
        self.told: list[MemoryChange] = []
        self.store = MemoryStore.at(directory / "memory")
        self.other = MemoryStore.at(directory / "other")
        memory = WritableMemory(stores=(self.store,), author=lambda: ME, on_change=self.told.append)
        (directory / "project").mkdir()
        self.workspace = Workspace(root=directory / "project", scratch=directory / "scratch", memory=memory)

    def path(self, name: str) -> str:
        """Return the path of a memory as given by the model."""
        return str(self.store.directory / name)

    async def call(self, tool: str, **value: str) -> ToolResult:
        """Return the result of an allowed call."""
        return await call_tool(TOOLS, tool, value, self.workspace)

    async def write(self, path: str, content: str = "A fact.\n") -> ToolResult:
        """Write a complete file."""
        return await self.call("Write", file_path=path, content=content)


@pytest.fixture
def desk(tmp_path: Path) -> MemoryWorkspace:
    return MemoryWorkspace(tmp_path)


async def test_memory_write_records_author_index_and_history(desk: MemoryWorkspace) -> None:
    text = "---\nname: Ports\ndescription: which ports are taken\ntype: project\n---\nStaging is on 8080.\n"
    result = await desk.write(desk.path("ports.md"), text)
    assert not result.is_error, result.text
    assert desk.store.read("ports.md") == text.encode()
    assert "(ports.md)" in desk.store.index()
    [change] = desk.store.changes()
    assert (change.author, change.action, change.after) == (ME, "added", text.encode())
    assert desk.told == [change]

    edited = await desk.call("Edit", file_path=desk.path("ports.md"), old_string="8080", new_string="9090")
    assert not edited.is_error, edited.text
    assert [change.action for change in desk.store.changes()] == ["added", "changed"]


async def test_write_on_changed_base_is_refused_with_new_text(desk: MemoryWorkspace) -> None:
    path = desk.path("a.md")
    await desk.write(path, "one\n")
    desk.store.write("a.md", b"two, by somebody else\n", SOMEBODY, base=b"one\n")
    refused = await desk.write(path, "three\n")
    assert refused.is_error
    assert "two, by somebody else" in refused.text
    assert desk.store.read("a.md") == b"two, by somebody else\n"
    again = await desk.call("Edit", file_path=path, old_string="two", new_string="three")
    assert not again.is_error, "what it was shown it knows"


async def test_unread_memory_is_shown_before_it_can_be_changed(desk: MemoryWorkspace) -> None:
    desk.store.write("a.md", b"what is known\n", SOMEBODY, base=None)
    refused = await desk.write(desk.path("a.md"))
    assert refused.is_error
    assert "what is known" in refused.text
    assert desk.store.read("a.md") == b"what is known\n"
    assert not (await desk.call("Read", file_path=desk.path("a.md"))).is_error
    assert not (await desk.write(desk.path("a.md"))).is_error


async def test_secret_is_refused_without_repeating_it(desk: MemoryWorkspace) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    refused = await desk.write(desk.path("a.md"), f"The token is {secret}.\n")
    assert refused.is_error
    assert secret not in refused.text
    assert desk.store.changes() == []


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "dontAsk", "plan"])
def test_memory_writes_are_free_except_in_plan_mode_or_by_rule(desk: MemoryWorkspace, mode: Mode) -> None:
    def verdict(path: str, *deny: str) -> type:
        rules = tuple(Rule.parse(text, "test") for text in deny)
        arguments = WriteInput(file_path=path, content="x")
        return type(Permissions(mode=mode, deny=rules).evaluate(Write(), arguments, desk.workspace))

    assert verdict(desk.path("a.md")) is (Denied if mode == "plan" else Allowed)
    assert verdict(desk.path("a.md"), "Write") is Denied
    assert verdict(str(desk.other.directory / "a.md")) in (NeedsPrompt, Denied)


@pytest.mark.parametrize("name", ["../other/a.md", "../memory2/a.md", "a/../../other/a.md", ".."])
def test_write_access_ends_at_the_store(desk: MemoryWorkspace, name: str) -> None:
    arguments = WriteInput(file_path=desk.path(name), content="x")
    verdict = Permissions(mode="acceptEdits").evaluate(Write(), arguments, desk.workspace)
    assert not isinstance(verdict, Allowed)


async def test_link_in_store_is_neither_followed_nor_replaced(desk: MemoryWorkspace, tmp_path: Path) -> None:
    victim = tmp_path / "victim.md"
    victim.write_text("mine\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    desk.store.directory.mkdir()
    (desk.store.directory / "a.md").symlink_to(victim)
    (desk.store.directory / "below").symlink_to(outside)
    for name in ("a.md", "below/b.md"):
        arguments = WriteInput(file_path=desk.path(name), content="x")
        assert isinstance(Permissions().evaluate(Write(), arguments, desk.workspace), Allowed), "known by its path"
        assert (await desk.write(desk.path(name))).is_error
    assert victim.read_text() == "mine\n"
    assert list(outside.iterdir()) == []
    read = ReadInput(file_path=desk.path("a.md"))
    assert isinstance(Permissions().evaluate(Read(), read, desk.workspace), NeedsPrompt), "read where the link leads"


async def test_store_directory_is_not_a_memory(desk: MemoryWorkspace) -> None:
    assert (await desk.write(desk.path("."))).is_error
    assert desk.store.paths() == []


async def test_memory_cannot_be_changed_through_outside_link(desk: MemoryWorkspace) -> None:
    await desk.write(desk.path("a.md"))
    link = desk.workspace.root / "memories"
    link.symlink_to(desk.store.directory)
    refused = await desk.write("memories/a.md", "changed\n")
    assert refused.is_error
    assert desk.path("a.md") in refused.text
    assert desk.store.read("a.md") == b"A fact.\n"


async def test_store_reached_by_link_is_recognised(desk: MemoryWorkspace, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(tmp_path)
    memory = WritableMemory(stores=(MemoryStore.at(tmp_path / "alias" / "memory"),), author=lambda: ME)
    workspace = Workspace(root=tmp_path / "project", scratch=tmp_path / "scratch", memory=memory)
    for name in ("alias/memory/a.md", "memory/a.md"):
        result = await call_tool(TOOLS, "Write", {"file_path": str(tmp_path / name), "content": name}, workspace)
        assert not result.is_error, result.text
    assert desk.store.read("a.md") == b"memory/a.md"


async def test_hard_link_is_not_written_through(desk: MemoryWorkspace, tmp_path: Path) -> None:
    victim = tmp_path / "victim.md"
    victim.write_text("mine\n")
    desk.store.directory.mkdir()
    os.link(victim, desk.store.directory / "a.md")
    await desk.call("Read", file_path=desk.path("a.md"))
    await desk.write(desk.path("a.md"), "changed\n")
    assert victim.read_text() == "mine\n"


async def test_names_equal_on_other_systems_are_one_file(desk: MemoryWorkspace) -> None:
    name = unicodedata.normalize("NFC", "café.md")
    assert not (await desk.write(desk.path(name))).is_error
    for twin in (unicodedata.normalize("NFD", name), name.upper().replace(".MD", ".md"), "Café.md"):
        assert (await desk.write(desk.path(twin), "twin\n")).is_error
    assert desk.store.paths() == [name]
    assert desk.store.read(name) == b"A fact.\n"
