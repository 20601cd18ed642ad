"""Tool protocol: definition, workspace, permission check and result of a tool call."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import attrs
import msgspec

from coterie.agents.errors import ToolFailed
from coterie.agents.loop.conversation.transcript_records import UsedSkill
from coterie.agents.prompts import render
from coterie.agents.sandbox.sandbox import Sandbox
from coterie.agents.tools.schema import input_schema, parse_input
from coterie.agents.tools.workspace.background_jobs import BackgroundJobs
from coterie.agents.tools.workspace.file_change import PlainFile
from coterie.agents.tools.workspace.memory_files import StoredMemoryFile, WritableMemory
from coterie.agents.tools.workspace.read_tracking import ReadFiles
from coterie.agents.tools.workspace.working_directory import ShellState
from coterie.suggestions import did_you_mean

REMEMBERED = 100
"""Skills; of more, those used longest ago are forgotten."""


@attrs.define(eq=False)
class UsedSkills:
    """The skills that one agent has used, each as it was used last. Belongs to the task that runs the agent's tools."""

    _used: dict[str, UsedSkill] = attrs.field(factory=dict, init=False, repr=False)
    _undrained: dict[str, None] = attrs.field(factory=dict, init=False, repr=False)

    def record(self, used: UsedSkill) -> None:
        """The model has been shown this skill."""
        self._remember(used)
        self._undrained.pop(used.name, None)
        self._undrained[used.name] = None

    def known(self) -> list[UsedSkill]:
        """All of them, the one used last at the end."""
        return list(self._used.values())

    def take_changes(self) -> list[UsedSkill]:
        """Those noted since this was last asked, in their order."""
        drained = [self._used[name] for name in self._undrained if name in self._used]
        self._undrained.clear()
        return drained

    def restore(self, used: Iterable[UsedSkill]) -> None:
        """Take over what `take_changes` said in an earlier run."""
        for each in used:
            self._remember(each)

    def _remember(self, used: UsedSkill) -> None:
        self._used.pop(used.name, None)
        self._used[used.name] = used
        if len(self._used) > REMEMBERED:
            del self._used[next(iter(self._used))]


RESULTS_DIRECTORY = "tool-results"
JOBS_DIRECTORY = "jobs"
"""Where an agent's own directory keeps what its calls gave: results too long for it, and output of jobs."""


@attrs.frozen(kw_only=True)
class WorkspaceChange:
    """What an agent needs to go on where it was, as far as it has changed."""

    seen: Mapping[str, str] = attrs.field(factory=dict)
    """Files the model knows: the version in hex, by path."""
    directory: str | None = None
    """Where commands start, relative to the root; None if that has not changed."""
    skills: Sequence[UsedSkill] = ()
    """Skills that were loaded."""


@attrs.frozen(kw_only=True)
class Workspace:
    """Where the tools of one agent work."""

    root: Path
    """The directory of the project; relative paths begin here, wherever the shell is."""
    scratch: Path
    """The agent's own directory, for what tools leave behind."""
    seen: ReadFiles = attrs.field(factory=ReadFiles)
    """What the agent's model knows of files."""
    shell: ShellState = attrs.field(default=attrs.Factory(lambda self: ShellState(root=self.root), takes_self=True))
    """What one command leaves to the next."""
    jobs: BackgroundJobs | None = None
    """The commands in the background; None where there can be none."""
    environment: Mapping[str, str] = attrs.field(factory=dict)
    """What commands are told besides what this process was."""
    memory: WritableMemory | None = None
    """The memories that the agent may change; None for one that keeps none."""
    shared: Path | None = None
    """What all agents of the session may read and write besides; None for nothing."""
    readable: tuple[Path, ...] = ()
    """Directories that may be read besides, with links followed: those of skills."""
    skills: UsedSkills = attrs.field(factory=UsedSkills)
    """Those that the agent has loaded."""
    sandbox: Sandbox | None = None
    """The wall around commands; None for none."""

    def changes(self) -> WorkspaceChange | None:
        """What has changed since this was last asked, to be recorded; None if nothing has."""
        change = WorkspaceChange(
            seen=self.seen.take_changes(), directory=self.shell.take_changes(), skills=self.skills.take_changes()
        )
        return change if change.seen or change.skills or change.directory is not None else None

    def restore(self, change: WorkspaceChange) -> None:
        """Take over a change of an earlier run; several in the order they were recorded. Raises `ValueError`."""
        self.seen.restore(change.seen)
        self.skills.restore(change.skills)
        if change.directory is not None:
            self.shell.restore(change.directory)

    def locate(self, path: str) -> Path:
        """The absolute path the model means by *path*, with links followed; it need not exist.

        Raises `ToolFailed` for what cannot be a path.
        """
        try:
            path.encode()
            return (self.root / path).resolve()
        except (OSError, ValueError, RuntimeError) as exc:  # RuntimeError: links that lead round in a circle
            raise ToolFailed(f"{path!r} is not a usable path: {exc}") from exc

    def target(self, path: str) -> PlainFile | StoredMemoryFile:
        """The file that the model means by *path*, to be changed. Raises `ToolFailed`.

        A memory is known by its path alone, so that nobody can put a link in its place between a decision and the
        change: its store follows none. By a link from elsewhere no memory can be changed.
        """
        resolved = self.locate(path)
        if self.memory is None:
            return PlainFile(name=path, path=resolved)
        if memory := self.memory.find(self.root / path):
            return memory
        if self.memory.holds(resolved):
            raise ToolFailed(f"{path} leads to a memory by a link. Change {resolved} instead.")
        return PlainFile(name=path, path=resolved)


@attrs.frozen(kw_only=True)
class Image:
    """A picture for the model to look at."""

    media_type: str
    data: str
    """In base64."""

    def block(self) -> dict[str, Any]:
        """As a content block."""
        return {"type": "image", "source": {"type": "base64", "media_type": self.media_type, "data": self.data}}


@attrs.frozen(kw_only=True)
class Document:
    """A document for the model to look at, page by page."""

    media_type: str
    data: str
    """In base64."""

    def block(self) -> dict[str, Any]:
        """As a content block."""
        return {"type": "document", "source": {"type": "base64", "media_type": self.media_type, "data": self.data}}


@attrs.frozen(kw_only=True)
class ToolResult:
    """The answer to one call, as the model will read it."""

    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    documents: tuple[Document, ...] = ()

    def block(self, tool_use_id: str) -> bytes:
        """The content block that answers the call *tool_use_id*."""
        media = [*(image.block() for image in self.images), *(document.block() for document in self.documents)]
        text = [{"type": "text", "text": self.text or "(no output)"}] if self.text or not media else []
        content = [*text, *media]
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
        return msgspec.json.encode({**block, "is_error": True} if self.is_error else block)


Access = Literal["read", "edit", "run", "session", "spawn"]
RESULT_CAP = 50_000
"""Characters of a result that stay in the conversation, for most tools."""


class Tool(Protocol):
    """Something the model may call. One object serves all calls, also at the same time, so it keeps no state."""

    @property
    def name(self) -> str:
        """What the model calls it by."""
        ...

    @property
    def description(self) -> str:
        """When and how to use it, in words for the model."""
        ...

    @property
    def input_type(self) -> type[attrs.AttrsInstance]:
        """The frozen class of its arguments; see `input_schema`."""
        ...

    @property
    def access(self) -> Access:
        """What a call may do: read files, edit the files it names, run anything, act within the session alone, or start
        an agent, which is judged by its own calls.

        Readers may run at once, and so may agents be started.
        """
        ...

    @property
    def is_clearable(self) -> bool:
        """Whether an old result may leave the conversation: the call could be made again."""
        ...

    @property
    def result_cap(self) -> int | None:
        """Characters over which a result is stored on disk instead; None for a tool that limits itself."""
        ...

    def paths_affected(self, arguments: Any, workspace: Workspace) -> Iterable[Path]:
        """The paths that a call names, absolute and with links followed. Raises `ToolFailed`.

        For a tool that reads or edits these are all it touches; one that runs things may touch more.
        """
        ...

    async def run(self, arguments: Any, workspace: Workspace) -> ToolResult:
        """Do what *arguments*, an instance of `input_type`, ask for.

        Raises `ToolFailed` for what the model can fix. When cancelled it leaves nothing running.
        """
        ...


@attrs.frozen
class ExternalInput:
    """The arguments of a tool that is not ours, as the model gave them: who has the tool knows what they mean."""

    values: Mapping[str, Any]


@runtime_checkable
class ExternalTool(Tool, Protocol):
    """A tool that is not ours: its `input_type` is `ExternalInput`, and the schema of that is somebody else's."""

    @property
    def schema(self) -> msgspec.Raw:
        """The JSON Schema of its input; the same bytes every time."""
        ...


Denial = Callable[[Tool, Any, Workspace], Awaitable[str | None]]
"""Says why a call may not run, in words for the model; None if it may. It may have to ask someone first."""


async def allow_all(_tool: Tool, _arguments: Any, _workspace: Workspace) -> None:
    """The `Denial` that denies nothing."""


def tool_description(name: str) -> str:
    """The description in `prompts/tools/<name>.md`."""
    return render(f"tools/{name}")


def tool_definition(tool: Tool) -> bytes:
    """The tool as an entry of a request's `tools`; the same bytes every time."""
    schema = tool.schema if isinstance(tool, ExternalTool) else input_schema(tool.input_type)
    return msgspec.json.encode({"name": tool.name, "description": tool.description, "input_schema": schema})


async def call_tool(
    tools: Mapping[str, Tool], name: str, value: Mapping[str, Any], workspace: Workspace, denial: Denial = allow_all
) -> ToolResult:
    """Answer the model's call of the tool *name* with the input *value*.

    An unknown tool, unusable input, a denied call and `ToolFailed` become error results that say what would be
    right. Whatever else is raised is a bug, and passes through.
    """
    try:
        tool = _find(tools, name)
        arguments = ExternalInput(value) if isinstance(tool, ExternalTool) else parse_input(tool.input_type, value)
        if reason := await denial(tool, arguments, workspace):
            return ToolResult(text=reason, is_error=True)
        return await tool.run(arguments, workspace)
    except ToolFailed as exc:
        return ToolResult(text=exc.reason, is_error=True)


def _find(tools: Mapping[str, Tool], name: str) -> Tool:
    if name not in tools:
        raise ToolFailed(f"There is no tool {name!r}: {did_you_mean(name, tools)}")
    return tools[name]
