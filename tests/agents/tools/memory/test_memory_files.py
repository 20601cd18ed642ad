"""Tests of Write and Edit on memories."""

from pathlib import Path

import pytest

from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import Rule
from coterie.agents.permissions.types import Allowed, Denied, Mode, NeedsPrompt
from coterie.agents.tools.files.edit import Edit
from coterie.agents.tools.files.read import Read, ReadInput
from coterie.agents.tools.files.write import Write, WriteInput
from coterie.agents.tools.tool import ToolResult, Workspace
from coterie.agents.tools.workspace.file_change import WritableMemory
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_store import MemoryStore
from tests.agents.tools.tool_calls import call

ME = Author(by="agent", agent="main", session="s", turn=3, why="told to")
SOMEBODY = Author(by="agent", agent="other")


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
        return str(self.store.directory / name)

    async def write(self, path: str, content: str = "A fact.\n") -> ToolResult:
        return await call(Write(), self.workspace, file_path=path, content=content)

    async def edit(self, name: str, old: str, new: str) -> ToolResult:
        return await call(Edit(), self.workspace, file_path=self.path(name), old_string=old, new_string=new)

    async def read(self, name: str) -> ToolResult:
        return await call(Read(), self.workspace, file_path=self.path(name))


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

    edited = await desk.edit("ports.md", "8080", "9090")
    assert not edited.is_error, edited.text
    assert [change.action for change in desk.store.changes()] == ["added", "changed"]


async def test_unread_or_changed_memory_is_shown_before_it_can_be_changed(desk: MemoryWorkspace) -> None:
    desk.store.write("a.md", b"what is known\n", SOMEBODY, base=None)
    refused = await desk.write(desk.path("a.md"))
    assert (refused.is_error, "what is known" in refused.text) == (True, True)
    assert desk.store.read("a.md") == b"what is known\n"
    assert not (await desk.read("a.md")).is_error
    assert not (await desk.write(desk.path("a.md"), "one\n")).is_error
    desk.store.write("a.md", b"two, by somebody else\n", SOMEBODY, base=b"one\n")
    refused = await desk.write(desk.path("a.md"), "three\n")
    assert (refused.is_error, "two, by somebody else" in refused.text) == (True, True)
    assert desk.store.read("a.md") == b"two, by somebody else\n"
    assert not (await desk.edit("a.md", "two", "three")).is_error, "what it was shown it knows"


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


async def test_memory_cannot_be_changed_through_outside_link(desk: MemoryWorkspace) -> None:
    await desk.write(desk.path("a.md"))
    link = desk.workspace.root / "memories"
    link.symlink_to(desk.store.directory)
    refused = await desk.write("memories/a.md", "changed\n")
    assert refused.is_error
    assert desk.path("a.md") in refused.text
    assert desk.store.read("a.md") == b"A fact.\n"
    assert (await desk.write(desk.path("."))).is_error


async def test_store_reached_by_link_is_recognised(desk: MemoryWorkspace, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(tmp_path)
    memory = WritableMemory(stores=(MemoryStore.at(tmp_path / "alias" / "memory"),), author=lambda: ME)
    workspace = Workspace(root=tmp_path / "project", scratch=tmp_path / "scratch", memory=memory)
    for name in ("alias/memory/a.md", "memory/a.md"):
        result = await call(Write(), workspace, file_path=str(tmp_path / name), content=name)
        assert not result.is_error, result.text
    assert desk.store.read("a.md") == b"memory/a.md"
