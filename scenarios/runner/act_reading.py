"""Reading what happens to a story from outside: what goes wrong, what its human does, and its commands."""

from collections.abc import Mapping
from typing import get_args

from coterie.scenarios.runner.disturbance_reading import DISTURBANCES, read_disturbance
from coterie.scenarios.runner.flaws import Flaws
from coterie.scenarios.runner.pattern import read_pattern
from coterie.scenarios.runner.story import Act, Fault, FaultDeed, HumanAct, HumanDeed, Step, Trigger
from coterie.scenarios.server.script.yaml_lines import Node, nearest

_MOMENT = ("when", "nth", "do")
FAULT_TAKES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("kill", "continue"), ("target",)),
    "stop": ("target", "seconds"),
    "jump": ("seconds",),
    **DISTURBANCES,
}
HUMAN_TAKES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("approve", "reject"), ("feedback",)),
    "mail": ("to", "text"),
    "stop": ("agent",),
    "begin": ("session",),
    "release": ("session",),
}
_NEEDED = ("target", "to", "text")
_APPROVALS = ("approval_asked", "answer_refused")
"""The events that say which approval is meant."""


def read_faults(node: Node | None, flaws: Flaws) -> list[Act]:
    """The list of faults; what is wrong with one is among the *flaws*, and it is left out."""
    acts: list[Act] = []
    for item in flaws.items(node, "a list of faults"):
        with flaws.collecting():
            acts.append(_fault(item, flaws))
    return acts


def read_human(node: Node | None, flaws: Flaws) -> list[Act]:
    """The list of what the human does, as `read_faults`."""
    acts: list[Act] = []
    for item in flaws.items(node, "a list of what the human does"):
        with flaws.collecting():
            acts.append(_human(item, flaws))
    return acts


def read_steps(node: Node | None, flaws: Flaws) -> tuple[Step, ...]:
    """The commands of the story; one `run` if there is no list of them."""
    steps = []
    for item in flaws.items(node, "a list of run, resume, mail and begin"):
        with flaws.collecting():
            steps.append(_step(item))
    if steps and steps[0].deed != "run":
        assert node is not None
        flaws.add(node.line, f"the first step is {steps[0].deed}; without a run there is no session yet")
    return tuple(steps) or (Step(deed="run"),)


def _fault(node: Node, flaws: Flaws) -> Act:
    fields, deed = _moment(node, FAULT_TAKES, flaws)
    if deed in DISTURBANCES:
        return read_disturbance(node, _trigger(node, fields) if "when" in fields else None)
    if deed == "jump" and "seconds" not in fields:
        raise node.refuse("jump needs 'seconds'")
    found: FaultDeed = next(known for known in get_args(FaultDeed) if known == deed)
    return Fault(
        when=_trigger(node, fields),
        deed=found,
        target=fields["target"].text() if "target" in fields else "",
        seconds=fields["seconds"].seconds() if "seconds" in fields else 0.0,
    )


def _human(node: Node, flaws: Flaws) -> HumanAct:
    fields, deed = _moment(node, HUMAN_TAKES, flaws)
    found: HumanDeed = next(known for known in get_args(HumanDeed) if known == deed)
    when = _trigger(node, fields)
    if deed in ("approve", "reject") and when.pattern.kind not in _APPROVALS:
        kinds = " or ".join(f"`when: {{kind: {kind}}}`" for kind in _APPROVALS)
        raise fields["when"].refuse(f"{deed} needs {kinds}: that event says what is asked for")
    if deed == "begin" and "session" not in fields:
        raise node.refuse("begin needs 'session': one of those below `sessions`")
    whom, words = fields.get("to") or fields.get("agent"), fields.get("text") or fields.get("feedback")
    return HumanAct(
        when=when,
        deed=found,
        to=None if whom is None else whom.text(),
        text="" if words is None else words.text(),
        session=fields["session"].text() if "session" in fields else "",
    )


def _moment(node: Node, takes: Mapping[str, tuple[str, ...]], flaws: Flaws) -> tuple[dict[str, Node], str]:
    fields = node.fields("a mapping with when and do")
    if "do" not in fields:
        raise node.refuse(f"{node.name} has no 'do'; expected `when: an event` and `do: something`")
    deed = fields["do"].text()
    if deed not in takes:
        raise fields["do"].refuse(f"nobody can {deed!r} here; {nearest(deed, takes)}")
    if "when" not in fields and deed not in DISTURBANCES:
        raise node.refuse(f"{node.name} has no 'when'; expected `when: an event` and `do: something`")
    flaws.fields(node, (*_MOMENT, *takes[deed]), "a mapping")
    for key in takes[deed]:
        if key in _NEEDED and key not in fields and deed not in DISTURBANCES:
            raise node.refuse(f"{deed} needs {key!r}")
    return fields, deed


def _trigger(node: Node, fields: dict[str, Node]) -> Trigger:
    nth = fields["nth"].count() if "nth" in fields else 1
    return Trigger(pattern=read_pattern(fields["when"]), nth=nth, line=node.line)


def _step(node: Node) -> Step:
    if node.is_scalar():
        if node.spelling == "run":
            return Step(deed="run")
        if node.spelling == "resume":
            return Step(deed="resume")
        raise node.refuse(f"{node.name} is {node.spelling!r}; {nearest(node.spelling, ('run', 'resume', 'mail'))}")
    fields = node.known_fields(("run", "resume", "mail", "begin"))
    if len(fields) > 1:
        raise node.refuse(f"{node.name} is more than one step; write each as an item of its own")
    if "mail" in fields:
        mail = fields["mail"].known_fields(("to", "text"))
        if len(mail) < 2:
            raise node.refuse("mail needs `to` and `text`")
        return Step(deed="mail", to=mail["to"].text(), text=mail["text"].text())
    if "begin" in fields:
        return Step(deed="begin", to=fields["begin"].text(), line=node.line)
    [(deed, words)] = fields.items()
    return Step(deed="run" if deed == "run" else "resume", text=words.text())
