"""JSON Schema of scenario files, generated from the parsers.

`python -m coterie.scenarios.runner.parsing.schema DIRECTORY` writes it; `docs/` holds the result. Editors check files
with it. The parser checks what a schema cannot express, such as agents that the script cannot have.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from coterie.agents.events.root_events import AgentState
from coterie.agents.settings import Mode
from coterie.files import replace_file
from coterie.mailbox.fault_points import MailFault
from coterie.orchestrator.events.json_schemas import DIALECT
from coterie.scenarios.api_server.script.script_parser import REPLY_KEYS
from coterie.scenarios.runner.event_pattern import AGENT, KIND, KINDS
from coterie.scenarios.runner.parsing.action_parser import FAULT_KEYS, IO_FAULT_KEYS, USER_ACTION_KEYS, WAYS
from coterie.scenarios.runner.parsing.scenario_parser import KEYS, NEEDED

FILE = "scenario.schema.json"

Schema = dict[str, Any]

_TEXT: Schema = {"type": ["string", "number", "boolean"]}
_SECONDS: Schema = {"type": "number", "minimum": 0}
_COUNT: Schema = {"type": "integer", "minimum": 1}
_FROM_0: Schema = {"type": "integer", "minimum": 0}
_TRUE: Schema = {"const": True}
_TRUTH: Schema = {"type": "boolean"}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}
_PATTERN: Schema = {"$ref": "#/$defs/event"}


def scenario_schema() -> Schema:
    """The schema of one scenario file."""
    return {
        "$schema": DIALECT,
        "title": "A scenario",
        "description": "A scripted team, what goes wrong, and what must come of it. See scenarios.md.",
        **_mapping({key: _KEYS[key] for key in KEYS}, NEEDED),
        "$defs": {
            "event": _event(),
            "script": _script(),
            "fault": _fault(),
            "act": _act(),
            "expectation": _expectation(),
        },
    }


def write_schema(directory: Path) -> None:
    """Put it into *directory*. Raises `OSError`."""
    replace_file(directory / FILE, msgspec.json.format(msgspec.json.encode(scenario_schema()), indent=2) + b"\n")


def _mapping(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*required],
        "additionalProperties": False,
        "minProperties": 1,
    }


def _any(keys: Iterable[str]) -> dict[str, Schema]:
    return {key: {} for key in keys}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def _event() -> Schema:
    """One kind of event each, with the members that it has; a text may be a /regular expression/."""
    return {
        "description": "Events of one kind whose members are as wanted; a text is equal, or a /regular expression/.",
        "oneOf": [
            _mapping({KIND: {"const": kind}, AGENT: _TEXT, **_any(get_type_hints(type_))}, (KIND,))
            for kind, type_ in sorted(KINDS.items())
        ],
    }


def _script() -> Schema:
    reply = {"anyOf": [_TEXT, _mapping(_any(REPLY_KEYS))]}
    return {
        "description": "The model's replies, by agent, or the path of a file with them; see scripts.md.",
        "anyOf": [{"type": "string"}, {"type": "object", "minProperties": 1, "additionalProperties": _list(reply)}],
    }


def _moment(deed: str, takes: Iterable[str], needed: Iterable[str]) -> Schema:
    shared = {"do": {"const": deed}, "when": _PATTERN, "nth": _COUNT}
    return _mapping({**shared, **{key: _VALUES[key] for key in takes}}, ("do", *needed))


def _fault() -> Schema:
    kinds = []
    for deed, takes in FAULT_KEYS.items():
        if deed not in IO_FAULT_KEYS:
            needed = ("when", *(key for key in takes if (deed, key) != ("stop", "seconds")))
            kinds.append(_moment(deed, takes, needed))
            continue
        ways = next((WAYS[mail] for mail in get_args(MailFault) if mail == deed), ())
        needed = (*(("transport",) if ways else ()), *(("seconds",) if deed == "delay" else ()))
        kind = _moment(deed, takes, needed)
        if ways:
            kind["properties"]["transport"] = {"enum": list(ways)}
        kinds.append(kind)
    return {"description": "What goes wrong.", "oneOf": kinds}


def _act() -> Schema:
    needed = {"mail": ("to", "text"), "begin": ("session",)}
    kinds = [_moment(deed, takes, ("when", *needed.get(deed, ()))) for deed, takes in USER_ACTION_KEYS.items()]
    return {"description": "What the human does, by a command.", "oneOf": kinds}


def _expectation() -> Schema:
    file = {"path": _TEXT, "contains": _TEXT, "equals": _TEXT, "missing": _TRUE}
    kinds: dict[str, Schema] = {
        "event": _PATTERN,
        "never": _PATTERN,
        "order": {"type": "array", "items": _PATTERN, "minItems": 2},
        "mail": _mapping({"exactly_once": _TRUE, "dead": _FROM_0}),
        "file": _mapping(file, ("path",)),
        "command": _mapping({"run": _TEXT, "status": _FROM_0, "contains": _TEXT}, ("run",)),
        "state": {"type": "object", "minProperties": 1, "additionalProperties": {"enum": list(get_args(AgentState))}},
        "cache_read_share": _mapping(
            {"at_least": {"type": "number", "minimum": 0, "maximum": 1}, "agent": _TEXT}, ("at_least",)
        ),
        "dollars": _mapping({"at_most": _SECONDS, "at_least": _SECONDS}),
        "exit_code": _FROM_0,
        "strays": {"const": 0},
    }
    schemas = [
        _mapping({key: kind, **({"times": _COUNT} if key == "event" else {})}, (key,)) for key, kind in kinds.items()
    ]
    return {"description": "What must come of it.", "oneOf": schemas}


_VALUES: Mapping[str, Schema] = {
    **dict.fromkeys(("target", "to", "text", "feedback", "agent", "files", "session"), _TEXT),
    "seconds": _SECONDS,
    "after": _FROM_0,
    "times": {"anyOf": [_COUNT, {"const": "always"}]},
    "transport": {},
}
"""What the keys of faults and of what the human does take."""

_STEP: Schema = {
    "anyOf": [
        {"enum": ["run", "resume"]},
        _mapping({"run": _TEXT}),
        _mapping({"resume": _TEXT}),
        _mapping({"begin": _TEXT}),
        _mapping({"mail": _mapping({"to": _TEXT, "text": _TEXT}, ("to", "text"))}),
    ]
}

_KEYS: Mapping[str, Schema] = {
    **dict.fromkeys(("name", "about", "task", "agent", "model"), _TEXT),
    "workspace": _mapping({"files": _TEXTS, "home": _TEXTS, "git": _TRUTH}),
    "script": {"$ref": "#/$defs/script"},
    "team": {"description": "A team file's content, or its path; see teams.md.", "type": ["string", "object"]},
    "settings": {"description": "The user's settings.toml; see settings.md.", "type": "object", "minProperties": 1},
    **dict.fromkeys(("coordinator", "bare"), _TRUTH),
    "permission_mode": {"enum": list(get_args(Mode))},
    "budget_usd": _SECONDS,
    "max_turns": _COUNT,
    "sessions": {
        "description": "Further sessions of the same user, by name.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": _mapping({"task": _TEXT, "script": {"$ref": "#/$defs/script"}}, ("task", "script")),
    },
    "steps": _list(_STEP),
    "human": _list({"$ref": "#/$defs/act"}),
    "faults": _list({"$ref": "#/$defs/fault"}),
    "limits": _mapping({"seconds": _SECONDS, "dollars": _SECONDS}),
    "expect": _list({"$ref": "#/$defs/expectation"}),
}


if __name__ == "__main__":
    write_schema(Path(sys.argv[1]))
