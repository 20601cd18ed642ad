"""Reading what goes wrong with mail and files: how often, whose, and from when on."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import get_args

from coterie.mailbox.faults import MailDeed, Way
from coterie.orchestrator.fault_orders import FaultOrder, FileDeed
from coterie.orchestrator.session import MAIN
from coterie.scenarios.runner.story import LEAD, Disturbance, Trigger
from coterie.scenarios.server.script.yaml_lines import Node, nearest

_SHARED = ("target", "after", "times")
DISTURBANCES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(get_args(MailDeed), (*_SHARED, "transport")),
    "delay": (*_SHARED, "transport", "seconds"),
    **dict.fromkeys(get_args(FileDeed), (*_SHARED, "files")),
}
"""By what it does: the keys that it takes."""
WAYS: Mapping[MailDeed, tuple[Way, ...]] = {
    "drop": ("queue", "file", "bell", "bridge"),
    "duplicate": ("queue", "file", "bridge"),
    "delay": ("queue", "file", "bridge"),
    "reorder": ("queue", "file"),
}
_ALWAYS = "always"


def read_disturbance(node: Node, when: Trigger | None) -> Disturbance:
    """The disturbance that *node* is, from *when* on. Raises `LineInvalid`."""
    fields = node.fields()
    deed = fields["do"].text()
    transport = next((_way(node, fields, each) for each in get_args(MailDeed) if each == deed), None)
    if deed == "delay" and "seconds" not in fields:
        raise node.refuse("delay needs 'seconds'")
    target = fields["target"].text() if "target" in fields else ""
    files = fields["files"].text() if "files" in fields else "*"
    if PurePath(files).is_absolute() or not PurePath(files).parts:
        raise fields["files"].refuse(
            f"{files!r} matches no file; give the end of a path, such as `agents/*/events.jsonl`"
        )
    order = FaultOrder(
        id=0,
        do=next(each for each in (*get_args(MailDeed), *get_args(FileDeed)) if each == deed),
        target=MAIN if target == LEAD else target,
        transport=transport,
        files=files,
        after=_from_0(fields["after"]) if "after" in fields else 0,
        times=_times(fields["times"]) if "times" in fields else 1,
        seconds=fields["seconds"].seconds() if "seconds" in fields else 0.0,
    )
    return Disturbance(order=order, when=when, line=node.line)


def _way(node: Node, fields: Mapping[str, Node], deed: MailDeed) -> Way:
    if "transport" not in fields:
        raise node.refuse(f"{deed} needs 'transport': {', '.join(WAYS[deed])}")
    word = fields["transport"].text()
    if word not in WAYS[deed]:
        raise fields["transport"].refuse(f"nothing can {deed} on {word!r}; {nearest(word, WAYS[deed])}")
    return next(way for way in WAYS[deed] if way == word)


def _times(node: Node) -> int | None:
    return None if node.value == _ALWAYS else node.count(f"a whole number from 1, or {_ALWAYS}")


def _from_0(node: Node) -> int:
    if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < 0:
        raise node.refuse_as("a whole number from 0")
    return node.value
