"""Base classes of the tools that the model may call, with the workspace, permission check and result of a call."""

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
"""Maximum number of skills that `UsedSkills` stores; beyond this limit the least recently used skill is removed."""
RESULTS_DIRECTORY = "tool-results"
"""Name of the folder in the agent's own directory (`Workspace.scratch`) that stores long results of tool calls."""
JOBS_DIRECTORY = "jobs"
"""Name of the folder in the agent's own directory (`Workspace.scratch`) that stores the output of background jobs."""
Access = Literal["read", "edit", "run", "session", "spawn"]
RESULT_CAP = 50_000
"""Default of `Tool.result_cap` in characters, a nominal limit: the settings contain the limit that is applied."""


@attrs.define(eq=False)
class UsedSkills:
    """Skills (instruction texts) that one agent has loaded. Used only in the thread of the agent's event loop."""

    _used: dict[str, UsedSkill] = attrs.field(factory=dict, init=False, repr=False)
    _undrained: dict[str, None] = attrs.field(factory=dict, init=False, repr=False)

    def record(self, used: UsedSkill) -> None:
        """Record that the model has received the text of the skill *used*; the next `take_changes` returns it."""
        self._remember(used)
        self._undrained.pop(used.name, None)
        self._undrained[used.name] = None

    def known(self) -> list[UsedSkill]:
        """Return the skills whose text the model has received, at most SKILL_LIMIT, the last used one at the end."""
        return list(self._used.values())

    def take_changes(self) -> list[UsedSkill]:
        """Return the skills recorded since the last call of this method, in order of use, for the transcript."""
        drained = [self._used[name] for name in self._undrained if name in self._used]
        self._undrained.clear()
        return drained

    def restore(self, used: Iterable[UsedSkill]) -> None:
        """Restore the skills that `take_changes` returned in an earlier run; it does not return them again."""
        for each in used:
            self._remember(each)

    def _remember(self, used: UsedSkill) -> None:
        self._used.pop(used.name, None)
        self._used[used.name] = used
        if len(self._used) > SKILL_LIMIT:
            del self._used[next(iter(self._used))]


@attrs.frozen(kw_only=True)
class Workspace:
    """Directories, state and services of one agent, passed to every call of its tools."""

    root: Path
    """Start directory of the agent, usually the project. Relative paths in tool calls start here, even after `cd`."""
    scratch: Path
    """The agent's own directory, outside the project, in which tools store long results and the output of jobs."""
    seen: ReadFiles = attrs.field(factory=ReadFiles)
    """Versions of the files that the model has read. A tool changes a file only if the current version was read."""
    shell: ShellState = attrs.field(default=attrs.Factory(lambda self: ShellState(root=self.root), takes_self=True))
    """Working directory of the next shell command: the directory in which the previous command ended."""
    jobs: BackgroundJobs | None = None
    """Background jobs (shell commands that run during later tool calls); None if the agent cannot start any."""
    environment: Mapping[str, str] = attrs.field(factory=dict)
    """Environment variables that shell commands get in addition to the variables of this process."""
    memory: WritableMemory | None = None
    """Memory stores (notes for later sessions) that the agent may change; None for an agent without memory."""
    shared: Path | None = None
    """Directory that all agents of the session may read and write without a prompt; None if there is none."""
    readable: tuple[Path, ...] = ()
    """Directories of the agent's skills, with links followed. Tools may read files there without a prompt."""
    skills: UsedSkills = attrs.field(factory=UsedSkills)
    """Skills (instruction texts) that the agent has loaded."""
    sandbox: Sandbox | None = None
    """Sandbox in which shell commands run; None if commands run without restrictions of the operating system."""

    def changes(self) -> StateRecord | None:
        """Return changes of `seen`, `shell` and `skills` since the last call, for the transcript; None if unchanged."""
        change = StateRecord(
            seen=self.seen.take_changes(), directory=self.shell.take_changes(), skills=self.skills.take_changes()
        )
        return change if change.seen or change.skills or change.directory is not None else None

    def restore(self, change: StateRecord) -> None:
        """Apply *change*, a record from the transcript, after all earlier ones. Raises `ValueError` if invalid."""
        self.seen.restore(change.seen)
        self.skills.restore(change.skills)
        if change.directory is not None:
            self.shell.restore(change.directory)

    def locate(self, path: str) -> Path:
        """Convert *path*, as the model gave it, to an absolute path with links followed. The file need not exist.

        Raises `ToolFailed` for an invalid path.
        """
        try:
            path.encode()
            return (self.root / path).resolve()
        except (OSError, ValueError, RuntimeError) as exc:  # RuntimeError: a symlink loop
            raise ToolFailed(f"{path!r} is not a valid path: {exc}. Call the tool again with another path.") from exc

    def target(self, path: str) -> PlainFile | StoredMemoryFile:
        """Return an object that reads and writes the file at *path*: a plain file, or a memory (a stored note).

        A memory is recognised by its path before links are followed. Its store follows no links, so that no link can
        replace the file between the permission check and the change. Raises `ToolFailed` if *path* is invalid, or is a
        link from another directory to a memory.
        """
        resolved = self.locate(path)
        if self.memory is None:
            return PlainFile(name=path, path=resolved)
        if memory := self.memory.find(self.root / path):
            return memory
        if self.memory.holds(resolved):
            raise ToolFailed(
                f"{path} is a link to a memory file, which cannot be changed by a link. Change {resolved}."
            )
        return PlainFile(name=path, path=resolved)


@attrs.frozen(kw_only=True)
class Media:
    """Base class of a file in a tool result that the model receives in its original format, not as text."""

    media_type: str
    data: str
    """Content of the file, encoded in base64."""
    block_type: ClassVar[str]

    def block(self) -> dict[str, Any]:
        """Return the file as a content block of the Messages API, to be encoded as JSON."""
        source = {"type": "base64", "media_type": self.media_type, "data": self.data}
        return {"type": self.block_type, "source": source}


class Image(Media):
    """Image in a tool result; the model sees the picture."""

    block_type = "image"


class Document(Media):
    """Document in a tool result, such as a PDF; the model sees its pages."""

    block_type = "document"


@attrs.frozen(kw_only=True)
class ToolResult:
    """Result of one tool call for the model: a text, which may be an error message, with images and documents."""

    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    documents: tuple[Document, ...] = ()

    def block(self, tool_use_id: str) -> bytes:
        """Encode the result as the JSON content block that answers the model's call with the id *tool_use_id*."""
        media = [each.block() for each in (*self.images, *self.documents)]
        text = [{"type": "text", "text": self.text or "(no output)"}] if self.text or not media else []
        content = [*text, *media]
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
        return msgspec.json.encode({**block, "is_error": True} if self.is_error else block)


class Tool(ABC):
    """Base class of tools (functions that the model may call). One object executes all calls, also concurrent calls."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """Name by which the model calls the tool."""

    @property
    def description(self) -> str:
        """Instructions for the model: when and how to use the tool. Default: the text of the prompt `tools/<name>`."""
        return render(f"tools/{self.name}")

    @property
    @abstractmethod
    def input_type(self) -> type[attrs.AttrsInstance]:
        """Frozen attrs class with the arguments of a call as fields; `input_schema` lists the allowed field types."""

    @property
    @abstractmethod
    def access(self) -> Access:
        """Kind of effect that a call can have; permissions depend on this kind.

        "read" reads files, "edit" changes the files that the call names, and "run" may do anything. "session" acts only
        on the session, for example on its tasks and messages. "spawn" starts an agent, whose calls are checked
        separately. Calls of tools with "read" may run concurrently with each other, and so may calls with "spawn".
        """

    @property
    def is_clearable(self) -> bool:
        """True if an old result of the tool may be removed from the conversation, to keep the model's context small."""
        return False

    @property
    def result_cap(self) -> int | None:
        """Nominal limit of a result in characters; None if the tool limits its own results, which are never stored.

        If this is not None, a result over the limit in the settings is stored in a file; this number is not used.
        """
        return RESULT_CAP

    def paths_affected(self, _arguments: Any, _workspace: Workspace) -> Iterable[Path]:
        """Return the absolute paths that a call names, with links followed, for the permission check; by default none.

        Calls with the access "read" or "edit" use no other files of the user. Calls with the access "run" may use more.
        Raises `ToolFailed` if a path is invalid.
        """
        return ()

    @abstractmethod
    async def run(self, arguments: Any, workspace: Workspace) -> ToolResult:
        """Execute a call with *arguments*, an instance of `input_type`.

        Raises `ToolFailed` for an error that the model can fix. Nothing that the call has started continues after its
        cancellation, unless the docstring of the tool says so.
        """


class ToolFacts(TypedDict, total=False):
    """Class arguments of a built-in tool: values of the properties of `Tool` that have the same names."""

    name: str
    input_type: type[attrs.AttrsInstance]
    access: Access
    is_clearable: bool
    result_cap: int | None


class BuiltInTool(Tool):
    """Base class of built-in tools. Class arguments set properties: `class Read(BuiltInTool, name="Read")`."""

    __slots__ = ()

    name: ClassVar[str]
    input_type: ClassVar[type[attrs.AttrsInstance]]
    access: ClassVar[Access]

    def __init_subclass__(cls, **facts: Unpack[ToolFacts]) -> None:
        """Set each class argument in *facts* as a class attribute.

        For a class with slots, attrs creates a second class without class arguments, but copies these attributes.
        """
        super().__init_subclass__()
        for name, value in facts.items():
            setattr(cls, name, value)


@attrs.frozen
class ExternalInput:
    """Arguments of an external tool as the model gave them, without a check by this program."""

    values: Mapping[str, Any]


class ExternalTool(Tool):
    """Base class of tools that another program, such as an MCP server, executes and defines by a JSON Schema."""

    __slots__ = ()

    @property
    def input_type(self) -> type[ExternalInput]:
        """The class `ExternalInput`: arguments are passed on as the model gave them, without a check."""
        return ExternalInput

    @property
    @abstractmethod
    def schema(self) -> msgspec.Raw:
        """JSON Schema of the arguments. Always the same bytes, so that cached prompts with this tool stay valid."""


Denial = Callable[[Tool, Any, Workspace], Awaitable[str | None]]
"""Function that checks the permission of a call and may prompt the user. Returns None, or a reason for the denial."""


async def allow_all(_tool: Tool, _arguments: Any, _workspace: Workspace) -> None:
    """Permission check that allows every call; the default of `call_tool`."""


def tool_definition(tool: Tool) -> bytes:
    """Encode *tool* as a JSON entry of the list `tools` in a model request. The same tool gives the same bytes."""
    schema = tool.schema if isinstance(tool, ExternalTool) else input_schema(tool.input_type)
    return msgspec.json.encode({"name": tool.name, "description": tool.description, "input_schema": schema})


async def call_tool(
    tools: Mapping[str, Tool], name: str, value: Mapping[str, Any], workspace: Workspace, denial: Denial = allow_all
) -> ToolResult:
    """Check and execute the model's call of the tool *name* with the input *value*.

    For an unknown tool, invalid input, a denied call and `ToolFailed`, returns an error result that tells the model how
    to correct the call. Any other exception is a bug and propagates.
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
