"""Parses the `expect` list of a scenario file, and describes its items as JSON Schemas."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, get_args

from coterie.agents.events.root_events import AgentState
from coterie.scenarios.api_server.script.located_yaml import YamlNode
from coterie.scenarios.runner.event_pattern import EventPattern
from coterie.scenarios.runner.expectations import (
    CacheReadShare,
    CommandEnds,
    CostWithin,
    EventSeen,
    ExitCodeIs,
    FileIs,
    InOrder,
    MailOnce,
    NeverSeen,
    NothingLeft,
    ScenarioCheck,
    StateIs,
)
from coterie.scenarios.runner.parsing.grammar import (
    COUNT,
    DOLLARS,
    EVENT,
    FROM_0,
    TEXT,
    TRUE,
    Keys,
    Schema,
    ValueType,
    mapping_schema,
    one_of,
)
from coterie.scenarios.runner.parsing.parse_errors import ParseErrors

_TIMES = "times"
_STATE = one_of(get_args(AgentState), "unknown agent state {}")


def _share(node: YamlNode) -> float:
    if not isinstance(node.value, int | float) or isinstance(node.value, bool) or not 0 <= node.value <= 1:
        raise node.refuse_as("a number from 0 to 1")
    return float(node.value)


def _order(node: YamlNode) -> tuple[EventPattern, ...]:
    patterns = tuple(EVENT.parse(item) for item in node.items("a list of events"))
    if len(patterns) < 2:
        raise node.refuse("order has only one event; add at least another one")
    return patterns


def _states(node: YamlNode) -> list[tuple[int, str, str]]:
    fields = node.fields("agents and their states")
    return [(state.line, agent, _STATE.parse(state)) for agent, state in fields.items()]


def _strays(node: YamlNode) -> None:
    if node.value != 0:
        raise node.refuse("strays must be 0, because no run may leave processes; write `strays: 0`")


_STATES: Schema = {"type": "object", "minProperties": 1, "additionalProperties": _STATE.schema}
_SHARE = ValueType(_share, {"type": "number", "minimum": 0, "maximum": 1})
_FILE = Keys({"path": TEXT, "contains": TEXT, "equals": TEXT, "missing": TRUE}, ("path",))

EXPECTATIONS: Mapping[str, ValueType[Any] | Keys] = {
    "event": EVENT,
    "never": EVENT,
    "order": ValueType(_order, {"type": "array", "items": EVENT.schema, "minItems": 2}),
    "mail": Keys({"exactly_once": TRUE, "dead": FROM_0}),
    "file": _FILE,
    "command": Keys({"run": TEXT, "status": FROM_0, "contains": TEXT}, ("run",)),
    "state": ValueType(_states, _STATES),
    "cache_read_share": Keys({"at_least": _SHARE, "agent": TEXT}, ("at_least",)),
    "dollars": Keys({"at_most": DOLLARS, "at_least": DOLLARS}),
    "exit_code": FROM_0,
    "strays": ValueType(_strays, {"const": 0}),
}
_CHECKS: Mapping[str, Callable[[int, Any], ScenarioCheck]] = {
    "event": lambda line, pattern: EventSeen(line=line, pattern=pattern),
    "never": lambda line, pattern: NeverSeen(line=line, pattern=pattern),
    "order": lambda line, patterns: InOrder(line=line, patterns=patterns),
    "mail": lambda line, values: MailOnce(line=line, dead=values.get("dead", 0)),
    "command": lambda line, values: CommandEnds(line=line, **values),
    "cache_read_share": lambda line, values: CacheReadShare(line=line, **values),
    "dollars": lambda line, values: CostWithin(line=line, **values),
    "exit_code": lambda line, code: ExitCodeIs(line=line, code=code),
    "strays": lambda line, _: NothingLeft(line=line),
}


def expectation_schemas() -> list[Schema]:
    """Return one JSON Schema for each kind of expectation in a scenario file, such as `exit_code`."""
    schemas = []
    for key, type_ in EXPECTATIONS.items():
        times = {_TIMES: COUNT.schema} if key == "event" else {}
        schema = type_.schema() if isinstance(type_, Keys) else type_.schema
        schemas.append(mapping_schema({key: schema, **times}, (key,)))
    return schemas


def parse_expectations(node: YamlNode | None, errors: ParseErrors) -> tuple[ScenarioCheck, ...]:
    """Parse the `expect` list, and add `NothingLeft` if missing; an invalid item is skipped and added to *errors*."""
    parsed = errors.parse_items(node, "a list of expectations", lambda item: _expectations(item, errors))
    found = list(itertools.chain(*parsed))
    if not any(isinstance(each, NothingLeft) for each in found):
        found.append(NothingLeft())
    return tuple(found)


def expected_agents(expectation: ScenarioCheck) -> list[str]:
    """Return the agent names in *expectation*, to check that the scenario has such agents."""
    match expectation:
        case StateIs(agent=str(agent)) | CacheReadShare(agent=str(agent)):
            return [agent]
        case EventSeen(pattern=pattern) | NeverSeen(pattern=pattern):
            return pattern.agents()
        case InOrder(patterns=patterns):
            return [name for pattern in patterns for name in pattern.agents()]
    return []


def _expectations(node: YamlNode, errors: ParseErrors) -> list[ScenarioCheck]:
    fields = node.known_fields((*EXPECTATIONS, _TIMES), "an expectation, such as `exit_code: 0`")
    names = [key for key in fields if key != _TIMES]
    if len(names) != 1:
        raise node.refuse(f"{node.name} has {len(names)} expectations; write exactly one in each item")
    [name] = names
    value, type_ = fields[name], EXPECTATIONS[name]
    parsed: Any = type_.parse(value, errors, name) if isinstance(type_, Keys) else type_.parse(value)
    if _TIMES in fields:
        if name != "event":
            raise fields[_TIMES].refuse("times can be used only with event; remove it here")
        return [EventSeen(line=node.line, pattern=parsed, times=COUNT.parse(fields[_TIMES]))]
    if name == "state":
        return [StateIs(line=line, agent=agent, state=state) for line, agent, state in parsed]
    if name == "file":
        is_missing = parsed.pop("missing", False)
        if is_missing and len(parsed) > 1:
            raise value.fields()["missing"].refuse("missing can be used only with path; remove it, or the other keys")
        return [FileIs(line=value.line, is_missing=is_missing, **parsed)]
    return [_CHECKS[name](value.line, parsed)]
