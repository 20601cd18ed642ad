"""The schemas in `docs/` are up to date, and session files conform to them."""

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from jsonschema import Draft202012Validator, ValidationError

from coterie.agents.events.agent_events import Retrying, TextEmitted, ToolEnded, ToolStarted
from coterie.agents.events.event_log import EVENTS
from coterie.agents.events.event_reader import DERIVED_EVENTS
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.transcript_records import MailRecord, Record, StateRecord
from coterie.orchestrator.events.json_schemas import event_schema, transcript_schema, write_schemas
from coterie.orchestrator.events.session_reader import read_session
from tests.orchestrator.session_writer import FINISHED, STARTED, open_writer, reply

DOCS = Path(__file__).parents[1] / "docs"

SCHEMAS = {"events": event_schema(), "transcript": transcript_schema()}
EVENT = Draft202012Validator(SCHEMAS["events"])
EVENT_KINDS = [kind.__struct_config__.tag for kind in (*EVENTS, *DERIVED_EVENTS)]
RECORD_KINDS = [kind.__struct_config__.tag for kind in get_args(Record)]


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Session with a rewrite, a block that contains a newline, and a damaged line."""
    told = [
        STARTED,
        TextEmitted(turn=1, text="x"),
        Retrying(error="529", seconds=1.5),
        ToolStarted(id="t", name="Read"),
    ]
    with open_writer(tmp_path) as agent:
        for event in told:
            agent.write_event(event)
        agent.write_text("user", "the task")
        agent.conversation.append("assistant", [b'{"type":"text",\n"text":"done"}'])
        state = StateRecord(seen={"a": "00"}, directory=None)
        agent.transcript.record(agent.conversation, reply(), state, MailRecord(ids=["1"]))
        agent.write_event(ToolEnded(id="t", name="Read", is_error=True, seconds=0.1, characters=5, reason="no"))
        agent.conversation = Conversation(agent.conversation.prefix.cut(2), 1)
        agent.write_text("assistant", "a summary")
    with (tmp_path / "agents/main/events.jsonl").open("ab") as log:
        log.write(b"{\n")
    with open_writer(tmp_path) as agent:
        agent.write_event(FINISHED)
    return tmp_path


def example(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Build an instance of *kind* with every required member from its definition."""
    definitions: dict[str, Any] = schema["$defs"]
    [definition] = [d for d in definitions.values() if d.get("properties", {}).get("kind", {}).get("enum") == [kind]]
    return {name: value(definitions, definition["properties"][name]) for name in definition["required"]}


def value(definitions: dict[str, Any], schema: dict[str, Any]) -> Any:
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
        return {name: value(definitions, schema["properties"][name]) for name in schema.get("required", [])}
    if "anyOf" in schema:
        return value(definitions, schema["anyOf"][0])
    simple = {"integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}, "string": "00000000"}
    return schema.get("const", schema.get("enum", [simple.get(schema.get("type", "object"))])[0])


def test_schema_files_are_up_to_date(tmp_path: Path) -> None:
    write_schemas(tmp_path)
    for path in tmp_path.iterdir():
        assert (DOCS / path.name).read_text() == path.read_text(), (
            "python -m coterie.orchestrator.events.json_schemas docs"
        )


def test_every_event_of_a_session_matches_the_schema(session: Path) -> None:
    lines = [msgspec.json.decode(event.line) for event in read_session(session)]
    for line in lines:
        EVENT.validate(line)
    presented = {kind.__struct_config__.tag for kind in DERIVED_EVENTS}
    assert {line["kind"] for line in lines} > presented


@pytest.mark.parametrize(
    ("name", "kind"), [*(("events", kind) for kind in EVENT_KINDS), *(("transcript", kind) for kind in RECORD_KINDS)]
)
def test_schema_accepts_new_members_and_requires_the_known(name: str, kind: str) -> None:
    line = example(SCHEMAS[name], kind)
    validator = Draft202012Validator(SCHEMAS[name])
    validator.validate({**line, "tomorrow": {"a": 1}})
    for member in line:
        with pytest.raises(ValidationError):
            validator.validate({key: line[key] for key in line if key != member})
