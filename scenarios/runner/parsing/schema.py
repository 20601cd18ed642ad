"""JSON Schema of scenario files, generated from their grammar.

`python -m coterie.scenarios.runner.parsing.schema DIRECTORY` writes the schema to a file; `docs/` contains this file.
Editors check scenario files with it. The parser also finds errors that a schema cannot, such as unknown agent names.
"""

import sys
from pathlib import Path
from typing import get_type_hints

import msgspec

from coterie.files import replace_file
from coterie.orchestrator.events.json_schemas import DIALECT
from coterie.scenarios.api_server.script.script_parser import REPLY_KEYS
from coterie.scenarios.runner.event_pattern import AGENT, KIND, KINDS
from coterie.scenarios.runner.parsing.action_parser import FAULTS, USER_ACTIONS, action_schemas
from coterie.scenarios.runner.parsing.expectation_parser import expectation_schemas
from coterie.scenarios.runner.parsing.grammar import TEXT, Schema, list_schema, mapping_schema
from coterie.scenarios.runner.parsing.scenario_parser import KEYS, NEEDED

FILE = "scenario.schema.json"


def scenario_schema() -> Schema:
    """Return the JSON Schema of a scenario file."""
    reply = {"anyOf": [TEXT.schema, mapping_schema({key: {} for key in REPLY_KEYS})]}
    events = [
        mapping_schema(
            {KIND: {"const": kind}, AGENT: TEXT.schema, **{key: {} for key in get_type_hints(type_)}}, (KIND,)
        )
        for kind, type_ in sorted(KINDS.items())
    ]
    return {
        "$schema": DIALECT,
        "title": "A scenario",
        "description": "A scripted team, its faults and expectations. See scenarios.md.",
        **mapping_schema(KEYS, NEEDED),
        "$defs": {
            "event": {
                "description": "An event kind and fields; a text must be equal, or is a /regular expression/.",
                "oneOf": events,
            },
            "script": {
                "description": "Replies of the model by agent, or the path of a file with them; see scripts.md.",
                "anyOf": [
                    {"type": "string"},
                    {"type": "object", "minProperties": 1, "additionalProperties": list_schema(reply)},
                ],
            },
            "fault": {"description": "A fault.", "oneOf": action_schemas(FAULTS)},
            "act": {"description": "A user action, run as a command.", "oneOf": action_schemas(USER_ACTIONS)},
            "expectation": {"description": "An expectation.", "oneOf": expectation_schemas()},
        },
    }


def write_schema(directory: Path) -> None:
    """Write the JSON Schema of scenario files to `scenario.schema.json` in *directory*. Raises `OSError`."""
    replace_file(directory / FILE, msgspec.json.format(msgspec.json.encode(scenario_schema()), indent=2) + b"\n")


if __name__ == "__main__":
    write_schema(Path(sys.argv[1]))
