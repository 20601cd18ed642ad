"""Fields of a definition that list tools, MCP servers and hooks."""

import re
from collections.abc import Iterator
from itertools import pairwise

import attrs

from coterie.agents.definitions.front_matter_fields import FrontMatterFields
from coterie.agents.hooks.hook import Hook
from coterie.agents.hooks.hook_parser import HookParser
from coterie.agents.mcp.server_config import ReportProblem, ServerConfig, parse_server
from coterie.agents.mcp.tool_names import plain_name
from coterie.memory.front_matter.yaml_fields import Value
from coterie.source_positions import JsonKeyPath

ALL = frozenset({"*", "all", "all tools"})
OTHER_NAMES = {
    "Task": ("Agent",),
    "MultiEdit": ("Edit",),
    "LS": ("Glob",),
    "TodoRead": ("TaskList",),
    "TodoWrite": ("TaskCreate", "TaskUpdate"),
}
"""What tools of other products, or of earlier days, are here; limits that name them are to hold."""


def tool_names(value: Value) -> list[str] | None:
    """The entries of *value*, a list or one string, in order and once each; None for everything.

    An entry may carry arguments, as in `Bash(git add:*, git commit:*)`.
    """
    texts = list(_texts(value))
    if any(text.strip().casefold() in ALL for text in texts):
        return None
    # Joined first: YAML cuts `[Bash(a, b), Read]` at the comma inside the brackets.
    return list(dict.fromkeys(_split(", ".join(texts))))


def bare_name(entry: str) -> str:
    """The tool that *entry* is about, without its arguments."""
    return entry.partition("(")[0]


def _texts(value: Value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    else:
        # `- Bash(git: x)` is a mapping in YAML.
        yield from (f"{key}: {text}" for key, below in value.items() for text in _texts(below))


def _split(text: str) -> list[str]:
    """Cut at commas and spaces that stand outside brackets."""
    cuts, depth = [-1], 0
    for at, character in enumerate(text):
        depth = max(0, depth + (character == "(") - (character == ")"))
        if depth == 0 and (character == "," or character.isspace()):
            cuts.append(at)
    entries = (text[start + 1 : end].strip("\"'`") for start, end in pairwise([*cuts, len(text)]))
    return [entry for entry in entries if entry]


@attrs.frozen(kw_only=True)
class ServerList:
    """What `mcpServers` says."""

    names: tuple[str, ...]
    """Of all servers that an agent of this kind may use, plain."""
    own: tuple[ServerConfig, ...]
    """Those of them that are configured right there."""


def parse_server_list(value: Value, tell: ReportProblem) -> ServerList:
    """Read names of servers, and servers by name; what cannot be one is told, and left out."""
    names: list[str] = []
    own: dict[str, ServerConfig] = {}
    for name, config in _entries(value):
        if config is None:
            names.append(plain_name(name))
        elif (read := parse_server(name, config, tell)) is not None:
            names.append(read.name)
            # It is there for agents of one kind, so nobody else has it open.
            own[read.name] = attrs.evolve(read, is_shared=False)
    return ServerList(names=tuple(dict.fromkeys(filter(None, names))), own=tuple(own.values()))


def _entries(value: Value) -> Iterator[tuple[str, Value | None]]:
    """Names, and with them the configuration of a server that is not configured elsewhere."""
    if isinstance(value, str):
        yield from ((name.strip(), None) for name in value.split(","))
    elif isinstance(value, list):
        for entry in value:
            yield from _entries(entry)
    else:
        yield from value.items()


FIELD = "hooks"


def parse_hook_field(reader: FrontMatterFields, text: str) -> tuple[Hook, ...]:
    """What the field says; what is wrong with it is told by *reader*, with its line in *text*."""
    value = reader.value(FIELD)
    if value is None:
        return ()
    hooks = HookParser(str(reader.path))
    found = hooks.parse(value)
    for flaw in hooks.problems:
        reader.add_problem("warning", _line(reader, text, flaw.place), flaw.reason)
    for event in hooks.elsewhere:
        reader.add_problem(
            "note", _line(reader, text, (event,)), f"{event} does not happen here, so its hooks do not run"
        )
    return found


def _line(reader: FrontMatterFields, text: str, place: JsonKeyPath) -> int:
    """Where the keys that lead to *place* stand, one below the other; of several alike, the first."""
    lines = text.splitlines()
    line = reader.front.lines.get(reader.spelling.get(FIELD, FIELD), reader.front.line or 1)
    for key in (step for step in place if isinstance(step, str)):
        wanted = re.compile(rf"""\s*(?:-\s+)?["']?{re.escape(key)}["']?\s*:""")
        line = next((at for at in range(line + 1, len(lines) + 1) if wanted.match(lines[at - 1])), line)
    return line
