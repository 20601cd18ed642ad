"""Parses the faults, user actions and steps of a scenario."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import get_args

from coterie.mailbox.fault_injection import FaultRule, FileFault
from coterie.mailbox.fault_points import MailFault, MailRoute
from coterie.scenarios.api_server.script.located_yaml import YamlNode, known_names_hint
from coterie.scenarios.runner.event_pattern import parse_pattern
from coterie.scenarios.runner.parsing.parse_errors import ParseErrors
from coterie.scenarios.runner.scenario import (
    LEAD,
    IoFault,
    ProcessFault,
    ProcessFaultName,
    ScenarioAction,
    ScenarioStep,
    Trigger,
    UserAction,
    UserActionName,
)
from coterie.session_directory import MAIN

_SHARED = ("target", "after", "times")
IO_FAULT_KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(get_args(MailFault), (*_SHARED, "transport")),
    "delay": (*_SHARED, "transport", "seconds"),
    **dict.fromkeys(get_args(FileFault), (*_SHARED, "files")),
}
"""By what it does: the keys that it takes."""
WAYS: Mapping[MailFault, tuple[MailRoute, ...]] = {
    "drop": ("queue", "file", "bell", "bridge"),
    "duplicate": ("queue", "file", "bridge"),
    "delay": ("queue", "file", "bridge"),
    "reorder": ("queue", "file"),
}
_ALWAYS = "always"


def parse_io_fault(node: YamlNode, when: Trigger | None) -> IoFault:
    """The disturbance that *node* is, from *when* on. Raises `LineInvalid`."""
    fields = node.fields()
    deed = fields["do"].text()
    transport = next((_way(node, fields, each) for each in get_args(MailFault) if each == deed), None)
    if deed == "delay" and "seconds" not in fields:
        raise node.refuse("delay needs 'seconds'")
    target = fields["target"].text() if "target" in fields else ""
    files = fields["files"].text() if "files" in fields else "*"
    if PurePath(files).is_absolute() or not PurePath(files).parts:
        raise fields["files"].refuse(
            f"{files!r} matches no file; give the end of a path, such as `agents/*/events.jsonl`"
        )
    rule = FaultRule(
        id=0,
        do=next(each for each in (*get_args(MailFault), *get_args(FileFault)) if each == deed),
        target=MAIN if target == LEAD else target,
        transport=transport,
        files=files,
        after=_from_0(fields["after"]) if "after" in fields else 0,
        times=_times(fields["times"]) if "times" in fields else 1,
        seconds=fields["seconds"].seconds() if "seconds" in fields else 0.0,
    )
    return IoFault(rule=rule, when=when, line=node.line)


def _way(node: YamlNode, fields: Mapping[str, YamlNode], deed: MailFault) -> MailRoute:
    if "transport" not in fields:
        raise node.refuse(f"{deed} needs 'transport': {', '.join(WAYS[deed])}")
    word = fields["transport"].text()
    if word not in WAYS[deed]:
        raise fields["transport"].refuse(f"nothing can {deed} on {word!r}; {known_names_hint(word, WAYS[deed])}")
    return next(way for way in WAYS[deed] if way == word)


def _times(node: YamlNode) -> int | None:
    return None if node.value == _ALWAYS else node.count(f"a whole number from 1, or {_ALWAYS}")


def _from_0(node: YamlNode) -> int:
    if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < 0:
        raise node.refuse_as("a whole number from 0")
    return node.value


_MOMENT = ("when", "nth", "do")
FAULT_KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("kill", "continue"), ("target",)),
    "stop": ("target", "seconds"),
    "jump": ("seconds",),
    **IO_FAULT_KEYS,
}
USER_ACTION_KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("approve", "reject"), ("feedback",)),
    "mail": ("to", "text"),
    "stop": ("agent",),
    "begin": ("session",),
    "release": ("session",),
}
_NEEDED = ("target", "to", "text")
_APPROVALS = ("approval_asked", "answer_refused")
"""The events that say which approval is meant."""


def parse_faults(node: YamlNode | None, errors: ParseErrors) -> list[ScenarioAction]:
    """The list of faults; what is wrong with one is among the *errors*, and it is left out."""
    actions: list[ScenarioAction] = []
    for item in errors.items(node, "a list of faults"):
        with errors.collecting():
            actions.append(_fault(item, errors))
    return actions


def parse_user_actions(node: YamlNode | None, errors: ParseErrors) -> list[ScenarioAction]:
    """The list of what the human does, as `parse_faults`."""
    actions: list[ScenarioAction] = []
    for item in errors.items(node, "a list of what the human does"):
        with errors.collecting():
            actions.append(_human(item, errors))
    return actions


def parse_steps(node: YamlNode | None, errors: ParseErrors) -> tuple[ScenarioStep, ...]:
    """The commands of the scenario; one `run` if there is no list of them."""
    steps = []
    for item in errors.items(node, "a list of run, resume, mail and begin"):
        with errors.collecting():
            steps.append(_step(item))
    if steps and steps[0].action != "run":
        assert node is not None
        errors.add(node.line, f"the first step is {steps[0].action}; without a run there is no session yet")
    return tuple(steps) or (ScenarioStep(action="run"),)


def _fault(node: YamlNode, errors: ParseErrors) -> ScenarioAction:
    fields, deed = _moment(node, FAULT_KEYS, errors)
    if deed in IO_FAULT_KEYS:
        return parse_io_fault(node, _trigger(node, fields) if "when" in fields else None)
    if deed == "jump" and "seconds" not in fields:
        raise node.refuse("jump needs 'seconds'")
    found: ProcessFaultName = next(known for known in get_args(ProcessFaultName) if known == deed)
    return ProcessFault(
        when=_trigger(node, fields),
        action=found,
        target=fields["target"].text() if "target" in fields else "",
        seconds=fields["seconds"].seconds() if "seconds" in fields else 0.0,
    )


def _human(node: YamlNode, errors: ParseErrors) -> UserAction:
    fields, deed = _moment(node, USER_ACTION_KEYS, errors)
    found: UserActionName = next(known for known in get_args(UserActionName) if known == deed)
    when = _trigger(node, fields)
    if deed in ("approve", "reject") and when.pattern.kind not in _APPROVALS:
        kinds = " or ".join(f"`when: {{kind: {kind}}}`" for kind in _APPROVALS)
        raise fields["when"].refuse(f"{deed} needs {kinds}: that event says what is asked for")
    if deed == "begin" and "session" not in fields:
        raise node.refuse("begin needs 'session': one of those below `sessions`")
    whom, words = fields.get("to") or fields.get("agent"), fields.get("text") or fields.get("feedback")
    return UserAction(
        when=when,
        action=found,
        to=None if whom is None else whom.text(),
        text="" if words is None else words.text(),
        session=fields["session"].text() if "session" in fields else "",
    )


def _moment(
    node: YamlNode, takes: Mapping[str, tuple[str, ...]], errors: ParseErrors
) -> tuple[dict[str, YamlNode], str]:
    fields = node.fields("a mapping with when and do")
    if "do" not in fields:
        raise node.refuse(f"{node.name} has no 'do'; expected `when: an event` and `do: something`")
    deed = fields["do"].text()
    if deed not in takes:
        raise fields["do"].refuse(f"nobody can {deed!r} here; {known_names_hint(deed, takes)}")
    if "when" not in fields and deed not in IO_FAULT_KEYS:
        raise node.refuse(f"{node.name} has no 'when'; expected `when: an event` and `do: something`")
    errors.fields(node, (*_MOMENT, *takes[deed]), "a mapping")
    for key in takes[deed]:
        if key in _NEEDED and key not in fields and deed not in IO_FAULT_KEYS:
            raise node.refuse(f"{deed} needs {key!r}")
    return fields, deed


def _trigger(node: YamlNode, fields: dict[str, YamlNode]) -> Trigger:
    nth = fields["nth"].count() if "nth" in fields else 1
    return Trigger(pattern=parse_pattern(fields["when"]), nth=nth, line=node.line)


def _step(node: YamlNode) -> ScenarioStep:
    if node.is_scalar():
        if node.spelling == "run":
            return ScenarioStep(action="run")
        if node.spelling == "resume":
            return ScenarioStep(action="resume")
        raise node.refuse(
            f"{node.name} is {node.spelling!r}; {known_names_hint(node.spelling, ('run', 'resume', 'mail'))}"
        )
    fields = node.known_fields(("run", "resume", "mail", "begin"))
    if len(fields) > 1:
        raise node.refuse(f"{node.name} is more than one step; write each as an item of its own")
    if "mail" in fields:
        mail = fields["mail"].known_fields(("to", "text"))
        if len(mail) < 2:
            raise node.refuse("mail needs `to` and `text`")
        return ScenarioStep(action="mail", to=mail["to"].text(), text=mail["text"].text())
    if "begin" in fields:
        return ScenarioStep(action="begin", to=fields["begin"].text(), line=node.line)
    [(deed, words)] = fields.items()
    return ScenarioStep(action="run" if deed == "run" else "resume", text=words.text())
