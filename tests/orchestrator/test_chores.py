"""A chore reaches the agent that is to do it, and the roster says nothing new of that agent."""

from pathlib import Path

import msgspec
import pytest

from coterie.agents.compaction.plan import Pivot
from coterie.agents.control.chores import Chore, Dream, Extract, read_chore
from coterie.agents.control.compaction_words import Compact
from coterie.mailbox.ids import MessageId
from coterie.orchestrator.root_process.assignment import Assignment
from coterie.orchestrator.settings import Settings
from coterie.orchestrator.tree.duty import Duty

CHORES = [None, Compact.of(0, Pivot(side="from", message=4)), Extract(), Dream(is_forced=True, deletions="apply")]


@pytest.mark.parametrize("chore", CHORES)
def test_a_chore_travels_from_the_command_to_the_agent(chore: Chore | None) -> None:
    wanted = Assignment(project=Path("/project"), task="Dream.", model="m", settings=Settings(), chore=chore)
    read = Assignment.from_bytes(wanted.to_bytes())
    assert read == wanted
    order = read.order()
    assert (order.engagement is None) == (chore is not None)
    duty = Duty(
        session="s",
        name=order.name,
        incarnation=1,
        parent=None,
        report=MessageId("r"),
        task=order.task,
        model=order.model,
        settings=order.settings,
        chore=order.chore,
    )
    assert Duty.from_bytes(duty.to_bytes()).chore == chore


def test_what_is_no_chore_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        read_chore({"word": "sleep"})
