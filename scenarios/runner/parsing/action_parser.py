"""Parses the `faults`, `human` (user actions) and `steps` (commands run one after another) of a scenario file."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, get_args

from coterie.mailbox.fault_injection import FaultRule, FileFault
from coterie.mailbox.fault_points import MailFault, MailRoute
from coterie.scenarios.api_server.script.located_yaml import YamlNode, known_names_hint
from coterie.scenarios.runner.parsing.grammar import (
    COUNT,
    EVENT,
    FROM_0,
    SECONDS,
    TEXT,
    TIMES,
    Keys,
    Schema,
    ValueType,
    mapping_schema,
    one_of,
)
from coterie.scenarios.runner.parsing.parse_errors import ParseErrors
from coterie.scenarios.runner.scenario import (
    LEAD,
    IoFault,
    ProcessFault,
    ScenarioAction,
    ScenarioStep,
    Trigger,
    UserAction,
)
from coterie.session_directory import MAIN

ROUTES: Mapping[MailFault, tuple[MailRoute, ...]] = {
    "drop": ("queue", "file", "bell", "bridge"),
    "duplicate": ("queue", "file", "bridge"),
    "delay": ("queue", "file", "bridge"),
    "reorder": ("queue", "file"),
}


def _file_pattern(node: YamlNode) -> str:
    files = node.text()
    if PurePath(files).is_absolute() or not PurePath(files).parts:
        raise node.refuse(f"{files!r} can match no file; give the end of a path, such as `agents/*/events.jsonl`")
    return files


def _keys(types: Mapping[str, ValueType[Any]], *required: str, when: tuple[str, ...] = ("when",)) -> Keys:
    action = ValueType(YamlNode.text, {})
    return Keys({"do": action, "when": EVENT, "nth": COUNT, **types}, ("do", *when, *required))


_IO_TYPES: Mapping[str, ValueType[Any]] = {"target": TEXT, "after": FROM_0, "times": TIMES}


def _mail_fault(fault: MailFault) -> Keys:
    transport = one_of(ROUTES[fault], f"there is no fault {fault} on transport {{}}")
    if fault == "delay":
        return _keys({**_IO_TYPES, "transport": transport, "seconds": SECONDS}, "transport", "seconds", when=())
    return _keys({**_IO_TYPES, "transport": transport}, "transport", when=())


IO_FAULTS: Mapping[str, Keys] = {
    **{fault: _mail_fault(fault) for fault in get_args(MailFault)},
    **dict.fromkeys(
        get_args(FileFault),
        _keys({**_IO_TYPES, "files": ValueType(_file_pattern, TEXT.schema)}, when=()),
    ),
}
FAULTS: Mapping[str, Keys] = {
    **dict.fromkeys(("kill", "continue"), _keys({"target": TEXT}, "target")),
    "stop": _keys({"target": TEXT, "seconds": SECONDS}, "target"),
    "jump": _keys({"seconds": SECONDS}, "seconds"),
    **IO_FAULTS,
}
USER_ACTIONS: Mapping[str, Keys] = {
    **dict.fromkeys(("approve", "reject"), _keys({"feedback": TEXT})),
    "mail": _keys({"to": TEXT, "text": TEXT}, "to", "text"),
    "stop": _keys({"agent": TEXT}),
    "begin": _keys({"session": TEXT}, "session"),
    "release": _keys({"session": TEXT}),
}
_APPROVALS = ("approval_asked", "answer_refused")
"""Kinds of events with the id of an approval request; only these can trigger `approve` and `reject`."""
_MAIL = Keys({"to": TEXT, "text": TEXT}, ("to", "text"))
_STEPS = ("run", "resume", "mail", "begin")
STEP_SCHEMA: Schema = {
    "anyOf": [
        {"enum": ["run", "resume"]},
        *(mapping_schema({step: TEXT.schema}) for step in ("run", "resume", "begin")),
        mapping_schema({"mail": _MAIL.schema()}),
    ]
}


def action_schemas(actions: Mapping[str, Keys]) -> list[Schema]:
    """Return one JSON Schema for each action in *actions*; the name of the action is the only value of its key `do`."""
    schemas = []
    for name, keys in actions.items():
        schema = keys.schema()
        schemas.append({**schema, "properties": {**schema["properties"], "do": {"const": name}}})
    return schemas


def parse_faults(node: YamlNode | None, errors: ParseErrors) -> list[ScenarioAction]:
    """Parse the `faults` list of a scenario file; an invalid fault is skipped, and its error added to *errors*."""
    return errors.parse_items(node, "a list of faults", lambda item: _fault(item, _values(item, FAULTS, errors)))


def parse_user_actions(node: YamlNode | None, errors: ParseErrors) -> list[UserAction]:
    """Parse the `human` list of a scenario file; an invalid user action is skipped, and its error added to *errors*."""
    return errors.parse_items(
        node, "a list of user actions", lambda item: _user_action(item, _values(item, USER_ACTIONS, errors))
    )


def parse_steps(node: YamlNode | None, errors: ParseErrors) -> tuple[ScenarioStep, ...]:
    """Parse the `steps` list of a scenario file; if *node* is None, the only step is `run`. Errors go to *errors*."""
    steps = errors.parse_items(node, "a list of steps: run, resume, mail, begin", lambda item: _step(item, errors))
    if steps and steps[0].action != "run":
        assert node is not None
        errors.add(node.line, f"the first step must be run, not {steps[0].action}; begin the list with run")
    return tuple(steps) or (ScenarioStep(action="run"),)


def _values(node: YamlNode, actions: Mapping[str, Keys], errors: ParseErrors) -> dict[str, Any]:
    fields = node.fields("a mapping, such as `{when: EVENT, do: ACTION}`")
    if "do" not in fields:
        raise node.refuse(f"{node.name} has no 'do'; expected `when: EVENT` and `do: ACTION`")
    name = fields["do"].text()
    if name not in actions:
        raise fields["do"].refuse(f"unknown action {name!r}; {known_names_hint(name, actions)}")
    return actions[name].parse(node, errors, name)


def _fault(node: YamlNode, values: dict[str, Any]) -> ScenarioAction:
    when = _trigger(node, values) if "when" in values else None
    if values["do"] not in IO_FAULTS:
        assert when is not None
        return ProcessFault(
            when=when, action=values["do"], target=values.get("target", ""), seconds=values.get("seconds", 0.0)
        )
    rule = {key: value for key, value in values.items() if key not in ("when", "nth")}
    if rule.get("target") == LEAD:
        rule["target"] = MAIN
    return IoFault(rule=FaultRule(id=0, **rule), when=when, line=node.line)


def _user_action(node: YamlNode, values: dict[str, Any]) -> UserAction:
    when, action = _trigger(node, values), values["do"]
    if action in ("approve", "reject") and when.pattern.kind not in _APPROVALS:
        kinds = " or ".join(f"`when: {{kind: {kind}}}`" for kind in _APPROVALS)
        raise node.fields()["when"].refuse(f"{action} needs {kinds}, which identifies the approval to answer")
    return UserAction(
        when=when,
        action=action,
        to=values.get("to") or values.get("agent"),
        text=values.get("text") or values.get("feedback") or "",
        session=values.get("session", ""),
    )


def _trigger(node: YamlNode, values: dict[str, Any]) -> Trigger:
    return Trigger(pattern=values["when"], nth=values.get("nth", 1), line=node.line)


def _step(node: YamlNode, errors: ParseErrors) -> ScenarioStep:
    if node.is_scalar():
        if node.spelling in ("run", "resume"):
            return ScenarioStep(action="run" if node.spelling == "run" else "resume")
        hint = known_names_hint(node.spelling, ("run", "resume", "mail"))
        raise node.refuse(f"unknown step {node.spelling!r}; {hint}")
    fields = node.known_fields(_STEPS)
    if len(fields) > 1:
        raise node.refuse(f"{node.name} has several steps; write each as a separate item of the list")
    if "mail" in fields:
        return ScenarioStep(action="mail", **_MAIL.parse(fields["mail"], errors, "mail"))
    if "begin" in fields:
        return ScenarioStep(action="begin", to=fields["begin"].text(), line=node.line)
    [(action, text)] = fields.items()
    return ScenarioStep(action="run" if action == "run" else "resume", text=text.text())
