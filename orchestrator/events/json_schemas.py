"""JSON Schemas of event lines and transcript lines.

`python -m coterie.orchestrator.events.json_schemas DIRECTORY` writes the schemas; `docs/` contains its output.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import msgspec

from coterie.agents.events.event_log import EVENTS, VERSION
from coterie.agents.events.event_reader import DERIVED_EVENTS
from coterie.agents.loop.conversation import transcript_records
from coterie.files import replace_file

DIALECT = "https://json-schema.org/draft/2020-12/schema"
HEAD: dict[str, Any] = {
    "v": {"type": "integer", "const": VERSION},
    "at": {"type": "number", "description": "Seconds since 1970; 0 where none was recorded."},
    "session": {"type": "string", "description": "The session's id."},
    "agent": {"type": "string", "description": "The agent's name."},
}
"""JSON Schema of the members at the start of every event line, by name."""
FRAME: dict[str, Any] = {
    "v": {"type": "integer", "const": transcript_records.VERSION},
    "crc": {
        "type": "string",
        "pattern": "^[0-9a-f]{8}$",
        "description": "The last member: CRC-32 of the bytes before the comma in front of it.",
    },
}
"""JSON Schema of the members that every transcript record has, by name."""


def event_schema() -> dict[str, Any]:
    """Build the schema of one line of `--output-format stream-json` and of `coterie logs --json`."""
    text = "One event of a session. Pass over members and kinds that you do not know: later versions add some."
    return _schema("An event", text, [*EVENTS, *DERIVED_EVENTS], HEAD)


def transcript_schema() -> dict[str, Any]:
    """Build the schema of one line of a transcript."""
    text = "One record of a transcript. A block that holds a newline stands as a string of JSON."
    return _schema("A record", text, get_args(transcript_records.Record), FRAME)


def _schema(title: str, text: str, kinds: Iterable[type], shared: dict[str, Any]) -> dict[str, Any]:
    """Build the schema of a line of any type in *kinds*, each with the members *shared*. Other members are allowed."""
    kinds = list(kinds)
    references, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for kind in kinds:
        definition = definitions[kind.__name__]
        definition["properties"] |= shared
        definition["required"] = list(dict.fromkeys([*shared, "kind", *definition["required"]]))
    return {"$schema": DIALECT, "title": title, "description": text, "oneOf": list(references), "$defs": definitions}


def write_schemas(directory: Path) -> None:
    """Write the schemas of events and of transcripts as two files into *directory*. Raises `OSError`."""
    for name, schema in (("events", event_schema()), ("transcript", transcript_schema())):
        content = msgspec.json.format(msgspec.json.encode(schema), indent=2)
        replace_file(directory / f"{name}.schema.json", content + b"\n")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
