"""Parses the expectations of a scenario."""

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import get_args

from coterie.agents.events.root_events import AgentState
from coterie.scenarios.api_server.script.located_yaml import YamlNode, known_names_hint
from coterie.scenarios.runner.event_pattern import EventPattern, parse_pattern
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
from coterie.scenarios.runner.parsing.parse_errors import ParseErrors

_TIMES = "times"


def parse_expectations(node: YamlNode | None, errors: ParseErrors) -> tuple[ScenarioCheck, ...]:
    """The list of expectations, and that nothing is left; what is wrong is among the *errors*."""
    found: list[ScenarioCheck] = []
    for item in errors.items(node, "a list of expectations"):
        with errors.collecting():
            found += _expectations(item)
    if not any(isinstance(each, NothingLeft) for each in found):
        found.append(NothingLeft())
    return tuple(found)


def expected_patterns(expectation: ScenarioCheck) -> tuple[EventPattern, ...]:
    """The events that it looks for."""
    if isinstance(expectation, EventSeen | NeverSeen):
        return (expectation.pattern,)
    return expectation.patterns if isinstance(expectation, InOrder) else ()


def expected_agents(expectation: ScenarioCheck) -> list[str]:
    """The agents that it names."""
    if isinstance(expectation, StateIs | CacheReadShare):
        return [] if expectation.agent is None else [expectation.agent]
    return [name for pattern in expected_patterns(expectation) for name in pattern.agents()]


def parse_dollars(node: YamlNode) -> Decimal:
    """An amount from 0, exact."""
    if not isinstance(node.value, int | float) or isinstance(node.value, bool) or node.value < 0:
        raise node.refuse_as("an amount of dollars")
    return Decimal(node.spelling)


def _expectations(node: YamlNode) -> list[ScenarioCheck]:
    fields = node.known_fields((*_PARSERS, _TIMES), "an expectation, such as `exit_code: 0`")
    names = [key for key in fields if key != _TIMES]
    if len(names) != 1:
        raise node.refuse(f"{node.name} is {len(names)} expectations; write each as an item of its own")
    if _TIMES in fields:
        if names != ["event"]:
            raise fields[_TIMES].refuse("times goes with event only")
        pattern = parse_pattern(fields["event"])
        return [EventSeen(line=node.line, pattern=pattern, times=fields[_TIMES].count())]
    return list(_PARSERS[names[0]](fields[names[0]]))


def _event(node: YamlNode) -> Iterator[ScenarioCheck]:
    yield EventSeen(line=node.line, pattern=parse_pattern(node))


def _never(node: YamlNode) -> Iterator[ScenarioCheck]:
    yield NeverSeen(line=node.line, pattern=parse_pattern(node))


def _order(node: YamlNode) -> Iterator[ScenarioCheck]:
    patterns = tuple(parse_pattern(item) for item in node.items("a list of events"))
    if len(patterns) < 2:
        raise node.refuse("an order needs two events at least")
    yield InOrder(line=node.line, patterns=patterns)


def _mail(node: YamlNode) -> Iterator[ScenarioCheck]:
    fields = node.known_fields(("exactly_once", "dead"))
    if "exactly_once" in fields and fields["exactly_once"].value is not True:
        raise fields["exactly_once"].refuse_as("true; leave it out otherwise")
    yield MailOnce(line=node.line, dead=_number(fields["dead"]) if "dead" in fields else 0)


def _file(node: YamlNode) -> Iterator[ScenarioCheck]:
    fields = node.known_fields(("path", "contains", "equals", "missing"))
    if "path" not in fields:
        raise node.refuse("file needs a path")
    missing = fields.get("missing")
    if missing is not None and (missing.value is not True or len(fields) > 2):
        raise missing.refuse("missing is true, and stands beside the path alone")
    texts = {key: fields[key].text() for key in ("contains", "equals") if key in fields}
    yield FileIs(line=node.line, path=fields["path"].text(), is_missing=missing is not None, **texts)


def _command(node: YamlNode) -> Iterator[ScenarioCheck]:
    fields = node.known_fields(("run", "status", "contains"))
    if "run" not in fields:
        raise node.refuse("command needs `run`: a line for the shell")
    status = _number(fields["status"]) if "status" in fields else 0
    contains = fields["contains"].text() if "contains" in fields else None
    yield CommandEnds(line=node.line, run=fields["run"].text(), status=status, contains=contains)


def _state(node: YamlNode) -> Iterator[ScenarioCheck]:
    for agent, state in node.fields("agents and their states").items():
        if state.text() not in get_args(AgentState):
            raise state.refuse(f"no agent is {state.text()!r}; {known_names_hint(state.text(), get_args(AgentState))}")
        yield StateIs(line=state.line, agent=agent, state=state.text())


def _cache_read_share(node: YamlNode) -> Iterator[ScenarioCheck]:
    fields = node.known_fields(("at_least", "agent"))
    share = fields["at_least"].value if "at_least" in fields else None
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
        raise node.refuse("cache_read_share needs `at_least`: a number from 0 to 1")
    agent = fields["agent"].text() if "agent" in fields else None
    yield CacheReadShare(line=node.line, at_least=float(share), agent=agent)


def _dollars(node: YamlNode) -> Iterator[ScenarioCheck]:
    fields = node.known_fields(("at_most", "at_least"))
    yield CostWithin(line=node.line, **{key: parse_dollars(value) for key, value in fields.items()})


def _exit_code(node: YamlNode) -> Iterator[ScenarioCheck]:
    yield ExitCodeIs(line=node.line, code=_number(node))


def _strays(node: YamlNode) -> Iterator[ScenarioCheck]:
    if node.value != 0:
        raise node.refuse("strays must be 0: no scenario may leave any")
    yield NothingLeft(line=node.line)


def _number(node: YamlNode) -> int:
    if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < 0:
        raise node.refuse_as("a whole number from 0")
    return node.value


_PARSERS: Mapping[str, Callable[[YamlNode], Iterator[ScenarioCheck]]] = {
    "event": _event,
    "never": _never,
    "order": _order,
    "mail": _mail,
    "file": _file,
    "command": _command,
    "state": _state,
    "cache_read_share": _cache_read_share,
    "dollars": _dollars,
    "exit_code": _exit_code,
    "strays": _strays,
}
