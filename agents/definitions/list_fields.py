"""Parsers for the fields of an agent definition that list tools, MCP servers or hooks."""

import re
from collections.abc import Iterator
from itertools import pairwise

import attrs

from coterie.agents.definitions.front_matter_fields import FrontMatterFields
from coterie.agents.hooks.hook import Hook, HookParser
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
"""Tool names of other products, each with the tools to use instead, so that a list with them keeps its intent."""
FIELD = "hooks"


def tool_names(value: Value) -> list[str] | None:
    """Return the tools that *value*, the value of a field, lists, without duplicates; None if the list means all tools.

    An entry keeps its arguments, as in `Bash(git add:*, git commit:*)`. *value* is a list or one string.
    """
    texts = list(_texts(value))
    if any(text.strip().casefold() in ALL for text in texts):
        return None
    # Joined first, because YAML splits `[Bash(a, b), Read]` at the comma inside the brackets.
    return list(dict.fromkeys(_split(", ".join(texts))))


def bare_name(entry: str) -> str:
    """Return the tool name in *entry* without arguments: `Bash` for `Bash(git add:*)`."""
    return entry.partition("(")[0]


def _texts(value: Value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    else:
        # YAML parses `- Bash(git: x)` as a mapping.
        yield from (f"{key}: {text}" for key, below in value.items() for text in _texts(below))


def _split(text: str) -> list[str]:
    """Return the entries of *text*, which are separated by commas or spaces outside of brackets."""
    cuts, depth = [-1], 0
    for at, character in enumerate(text):
        depth = max(0, depth + (character == "(") - (character == ")"))
        if depth == 0 and (character == "," or character.isspace()):
            cuts.append(at)
    entries = (text[start + 1 : end].strip("\"'`") for start, end in pairwise([*cuts, len(text)]))
    return [entry for entry in entries if entry]


def parse_server_list(value: Value, report: ReportProblem) -> tuple[tuple[str, ...], tuple[ServerConfig, ...]]:
    """Parse `mcpServers`: names of all MCP servers that agents of the type may use, and the servers that it defines.

    Invalid entries are left out and passed to *report*.
    """
    names: list[str] = []
    own: dict[str, ServerConfig] = {}
    for name, config in _entries(value):
        if config is None:
            names.append(plain_name(name))
        elif (server := parse_server(name, config, report)) is not None:
            names.append(server.name)
            # Only agents of one type use this server, so each gets its own connection.
            own[server.name] = attrs.evolve(server, is_shared=False)
    return tuple(dict.fromkeys(filter(None, names))), tuple(own.values())


def _entries(value: Value) -> Iterator[tuple[str, Value | None]]:
    """Yield each server name in *value*, with its configuration, or None if the server is configured elsewhere."""
    if isinstance(value, str):
        yield from ((name.strip(), None) for name in value.split(","))
    elif isinstance(value, list):
        for entry in value:
            yield from _entries(entry)
    else:
        yield from value.items()


def parse_hook_field(reader: FrontMatterFields) -> tuple[Hook, ...]:
    """Return the hooks in the `hooks` field of a definition; problems in the field are added to *reader*."""
    value = reader.value(FIELD)
    if value is None:
        return ()
    hooks = HookParser(str(reader.path))
    found = hooks.parse(value)
    for problem in hooks.problems:
        reader.add_problem("warning", _line(reader, problem.place), problem.reason)
    for event in hooks.elsewhere:
        reason = f"the event {event} does not exist here, so its hooks do not run"
        reader.add_problem("note", _line(reader, (event,)), reason)
    return found


def _line(reader: FrontMatterFields, place: JsonKeyPath) -> int:
    """Return the line of *place*, a path of keys in the `hooks` field; each key is searched below the one before it."""
    lines = reader.content.splitlines()
    line = reader.line_of(FIELD)
    for key in (step for step in place if isinstance(step, str)):
        key_line = re.compile(rf"""\s*(?:-\s+)?["']?{re.escape(key)}["']?\s*:""")
        line = next((at for at in range(line + 1, len(lines) + 1) if key_line.match(lines[at - 1])), line)
    return line
