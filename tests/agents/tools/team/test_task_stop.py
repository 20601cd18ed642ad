"""Tests of the TaskStop tool."""

import attrs
import pytest
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused, SpawnRequest
from coterie.agents.tools.team.control_tools import TaskStop, TaskStopInput
from coterie.agents.tools.tool import Workspace
from coterie.mailbox.envelope import Envelope


@attrs.define(eq=False)
class Parent:
    """Spawner with one started agent."""

    child: str
    stopped: list[str] = attrs.field(factory=list)

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """See `Spawner.spawn`."""
        raise AssertionError(request)

    async def stop(self, name: str) -> None:
        """See `Spawner.stop`."""
        await trio.lowlevel.checkpoint()
        if name != self.child:
            raise SpawnRefused(f"You have no agent {name!r} at work that could be stopped: there is {self.child}")
        self.stopped.append(name)

    async def request_shutdown(self, request: Envelope) -> None:
        """See `Spawner.request_shutdown`."""
        raise AssertionError(request)

    async def wait_until_idle(self) -> None:
        """See `Spawner.wait_until_idle`."""
        raise AssertionError


async def test_started_agent_is_stopped_but_unknown_name_is_tool_error(workspace: Workspace) -> None:
    parent = Parent("scout")
    with pytest.raises(ToolFailed, match="no agent 'main' at work that could be stopped: there is scout"):
        await TaskStop(parent).run(TaskStopInput(name="main"), workspace)
    assert parent.stopped == []
    result = await TaskStop(parent).run(TaskStopInput(name="scout"), workspace)
    assert (parent.stopped, result.text) == (["scout"], "scout is stopped, with all agents that it had started.")
