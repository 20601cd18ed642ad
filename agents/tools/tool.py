"""Tool base class: definition, workspace, permission check and result of a tool call."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict, Unpack

import attrs
import msgspec

from coterie.agents.errors import ToolFailed
from coterie.agents.loop.conversation.transcript_records import StateRecord, UsedSkill
from coterie.agents.prompts import render
from coterie.agents.sandbox.sandbox import Sandbox
from coterie.agents.tools.schema import input_schema, parse_input
from coterie.agents.tools.workspace.background_jobs import BackgroundJobs
from coterie.agents.tools.workspace.file_change import PlainFile, ReadFiles, StoredMemoryFile, WritableMemory
from coterie.agents.tools.workspace.working_directory import ShellState
from coterie.suggestions import did_you_mean

SKILL_LIMIT = 100
"""Maximum number of remembered skills; the least recently used ones are forgotten."""
RESULTS_DIRECTORY = "tool-results"
JOBS_DIRECTORY = "jobs"
"""Directories in an agent's own directory: long results of tool calls, and output of background jobs."""
Access = Literal["read", "edit", "run", "session", "spawn"]
RESULT_CAP = 50_000
"""Default limit of a result in characters; longer results are stored on disk."""


@attrs.define(eq=False)
class UsedSkills:
    """The skills that one agent has used, with their last arguments. Owned by the task that runs the agent's tools."""

    _used: dict[str, UsedSkill] = attrs.field(factory=dict, init=False, repr=False)
    _undrained: dict[str, None] = attrs.field(factory=dict, init=False, repr=False)

    def record(self, used: UsedSkill) -> None:
        """Record that the text of a skill was shown to the model."""
        self._remember(used)
        self._undrained.pop(used.name, None)
        self._undrained[used.name] = None

    def known(self) -> list[UsedSkill]:
        """Return all used skills, most recently used last."""
        return list(self._used.values())

    def take_changes(self) -> list[UsedSkill]:
        """Return the skills recorded since the last call, in order of use."""
        drained = [self._used[name] for name in self._undrained if name in self._used]
        self._undrained.clear()
        return drained

    def restore(self, used: Iterable[UsedSkill]) -> None:
        """Restore skills that `take_changes` returned in an earlier run."""
        for each in used:
            self._remember(each)

    def _remember(self, used: UsedSkill) -> None:
        self._used.pop(used.name, None)
        self._used[used.name] = used
        if len(self._used) > SKILL_LIMIT:
            del self._used[next(iter(self._used))]


@attrs.frozen(kw_only=True)
class Workspace:
    """The directories, state and services that the tools of one agent use."""

    root: Path
    """Directory of the project. Relative paths start here, regardless of the working directory of the shell."""
    scratch: Path
    """The agent's own directory, for files that tools create."""
    seen: ReadFiles = attrs.field(factory=ReadFiles)
    """Versions of the files that the model has read."""
    shell: ShellState = attrs.field(default=attrs.Factory(lambda self: ShellState(root=self.root), takes_self=True))
    """Working directory that one command passes on to the next."""
    jobs: BackgroundJobs | None = None
    """Commands in the background; None if background jobs are not available."""
    environment: Mapping[str, str] = attrs.field(factory=dict)
    """Variables that commands get in addition to the environment of this process."""
    memory: WritableMemory | None = None
    """Memories that the agent may change; None for an agent without memory."""
    shared: Path | None = None
    """Further directory that all agents of the session may read and write; None for none."""
    readable: tuple[Path, ...] = ()
    """Further directories that may be read, with links followed: those of skills."""
    skills: UsedSkills = attrs.field(factory=UsedSkills)
    """Skills that the agent has loaded."""
    sandbox: Sandbox | None = None
    """Sandbox for commands; None for no sandbox."""

    def changes(self) -> StateRecord | None:
        """Return the changes since the last call, to be recorded; None if nothing has changed."""
        change = StateRecord(
            seen=self.seen.take_changes(), directory=self.shell.take_changes(), skills=self.skills.take_changes()
        )
        return change if change.seen or change.skills or change.directory is not None else None

    def restore(self, change: StateRecord) -> None:
        """Apply a change of an earlier run; apply several in the order of their records. Raises `ValueError`."""
        self.seen.restore(change.seen)
        self.skills.restore(change.skills)
        if change.directory is not None:
            self.shell.restore(change.directory)

    def locate(self, path: str) -> Path:
        """Return the absolute path of *path* as given by the model, with links followed; it need not exist.

        Raises `ToolFailed` for an invalid path.
        """
        try:
            path.encode()
            return (self.root / path).resolve()
        except (OSError, ValueError, RuntimeError) as exc:  # RuntimeError: a symlink loop
            raise ToolFailed(f"{path!r} is not a valid path: {exc}") from exc

    def target(self, path: str) -> PlainFile | StoredMemoryFile:
        """Return the file at *path*, as given by the model, for a change. Raises `ToolFailed`.

        A memory is recognised by its unresolved path: its store follows no links, so no link can replace the file
        between the permission check and the change. Memories cannot be changed through a link from another directory.
        """
        resolved = self.locate(path)
        if self.memory is None:
            return PlainFile(name=path, path=resolved)
        if memory := self.memory.find(self.root / path):
            return memory
        if self.memory.holds(resolved):
            raise ToolFailed(f"{path} is a link to a memory. Change {resolved} instead.")
        return PlainFile(name=path, path=resolved)


@attrs.frozen(kw_only=True)
class Media:
    """A file that the model gets in its own format."""

    media_type: str
    data: str
    """Content in base64."""
    block_type: ClassVar[str]

    def block(self) -> dict[str, Any]:
        """Return the file as a content block."""
        source = {"type": "base64", "media_type": self.media_type, "data": self.data}
        return {"type": self.block_type, "source": source}


class Image(Media):
    """An image for the model."""

    block_type = "image"


class Document(Media):
    """A document, such as a PDF, for the model."""

    block_type = "document"


@attrs.frozen(kw_only=True)
class ToolResult:
    """Result of one tool call, as the model gets it."""

    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    documents: tuple[Document, ...] = ()

    def block(self, tool_use_id: str) -> bytes:
        """Return the result as the content block for the call *tool_use_id*."""
        media = [each.block() for each in (*self.images, *self.documents)]
        text = [{"type": "text", "text": self.text or "(no output)"}] if self.text or not media else []
        content = [*text, *media]
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
        return msgspec.json.encode({**block, "is_error": True} if self.is_error else block)


class Tool(ABC):
    """A function that the model may call. One stateless object serves all calls, including concurrent ones."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """Name by which the model calls the tool."""

    @property
    def description(self) -> str:
        """Instructions for the model: when and how to use the tool. By default the prompt `tools/<name>.md`."""
        return render(f"tools/{self.name}")

    @property
    @abstractmethod
    def input_type(self) -> type[attrs.AttrsInstance]:
        """Frozen class of the arguments; see `input_schema`."""

    @property
    @abstractmethod
    def access(self) -> Access:
        """Effect of a call, for permissions.

        "read" reads files, "edit" changes the files that the call names, "run" may do anything, "session" acts only
        within the session, and "spawn" starts an agent, whose own calls are checked. Calls with "read" or "spawn" may
        run concurrently.
        """

    @property
    def is_clearable(self) -> bool:
        """True if an old result may be removed from the conversation, because the call can be repeated."""
        return False

    @property
    def result_cap(self) -> int | None:
        """Maximum characters of a result; longer ones are stored on disk. None for a tool that limits its results."""
        return RESULT_CAP

    def paths_affected(self, _arguments: Any, _workspace: Workspace) -> Iterable[Path]:
        """Return the absolute paths that a call names, with links followed; by default none. Raises `ToolFailed`.

        A tool with access "read" or "edit" touches only these; one with access "run" may touch more.
        """
        return ()

    @abstractmethod
    async def run(self, arguments: Any, workspace: Workspace) -> ToolResult:
        """Execute a call with *arguments*, an instance of `input_type`.

        Raises `ToolFailed` for an error that the model can fix. After cancellation nothing keeps running.
        """


class ToolFacts(TypedDict, total=False):
    """Facts of a built-in tool; see the properties of `Tool`."""

    name: str
    input_type: type[attrs.AttrsInstance]
    access: Access
    is_clearable: bool
    result_cap: int | None


class BuiltInTool(Tool):
    """A tool of this program, with its facts as arguments of the class: `class Read(BuiltInTool, name="Read", ...)`."""

    __slots__ = ()

    name: ClassVar[str]
    input_type: ClassVar[type[attrs.AttrsInstance]]
    access: ClassVar[Access]

    def __init_subclass__(cls, **facts: Unpack[ToolFacts]) -> None:
        """Set the *facts*; attrs defines a class with slots again, without them, from a copy that has them."""
        super().__init_subclass__()
        for name, value in facts.items():
            setattr(cls, name, value)


@attrs.frozen
class ExternalInput:
    """Unchecked arguments of an external tool, as given by the model."""

    values: Mapping[str, Any]


class ExternalTool(Tool):
    """A tool of another program, such as an MCP server, with its own schema."""

    __slots__ = ()

    @property
    def input_type(self) -> type[ExternalInput]:
        """Class of unchecked arguments."""
        return ExternalInput

    @property
    @abstractmethod
    def schema(self) -> msgspec.Raw:
        """JSON Schema of the input; always the same bytes."""


Denial = Callable[[Tool, Any, Workspace], Awaitable[str | None]]
"""Permission check: returns the reason for the model why a call is denied, or None; may ask for an approval."""


async def allow_all(_tool: Tool, _arguments: Any, _workspace: Workspace) -> None:
    """Permission check that allows every call."""


def tool_definition(tool: Tool) -> bytes:
    """Serialize the tool as an entry of a request's `tools`; always the same bytes."""
    schema = tool.schema if isinstance(tool, ExternalTool) else input_schema(tool.input_type)
    return msgspec.json.encode({"name": tool.name, "description": tool.description, "input_schema": schema})


async def call_tool(
    tools: Mapping[str, Tool], name: str, value: Mapping[str, Any], workspace: Workspace, denial: Denial = allow_all
) -> ToolResult:
    """Execute the model's call of the tool *name* with the input *value*.

    An unknown tool, invalid input, a denied call and `ToolFailed` become error results with the correct usage. Any
    other exception is a bug and propagates.
    """
    if name not in tools:
        return ToolResult(text=f"There is no tool {name!r}: {did_you_mean(name, tools)}", is_error=True)
    tool = tools[name]
    try:
        arguments = ExternalInput(value) if isinstance(tool, ExternalTool) else parse_input(tool.input_type, value)
        if reason := await denial(tool, arguments, workspace):
            return ToolResult(text=reason, is_error=True)
        return await tool.run(arguments, workspace)
    except ToolFailed as exc:
        return ToolResult(text=exc.reason, is_error=True)
