"""Control socket of a root: early requests wait, and requests of agents are refused."""

import pytest
import trio
import trio.testing

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.orchestrator.control.client import send_request
from coterie.orchestrator.control.requests import (
    ControlAnswer,
    ControlRequest,
    DeliveryStatus,
    DeliveryStatuses,
    SendMail,
    StopAgent,
    control_address,
)
from coterie.orchestrator.control.server import open_control_server, open_listener
from coterie.orchestrator.session import root_lock
from coterie.orchestrator.session.root_lock import hold_root_lock, open_root_record
from coterie.session_directory import SessionDirectory

PATIENCE = 10.0


async def count(request: ControlRequest) -> ControlAnswer:
    """Say how much was asked for."""
    assert isinstance(request, SendMail)
    return DeliveryStatuses(fates=(DeliveryStatus(recipient=request.to, refusal=f"{len(request.body)} characters"),))


async def test_descendant_of_the_root_is_refused_for_any_message_length(session: SessionDirectory) -> None:
    with trio.fail_after(PATIENCE), open_root_record(session, Clock()) as root:
        async with open_listener(control_address(root)) as door, open_control_server(door, count):
            with pytest.raises(ConfigInvalid, match=r"not an agent; agents write to each other with SendMessage$"):
                await send_request(root, SendMail(to="main", body="x" * 900_000))
            with pytest.raises(ConfigInvalid, match=r"only the user can send this request, not an agent$"):
                await send_request(root, StopAgent(name="main"))


async def test_request_waits_until_the_root_is_ready(session: SessionDirectory) -> None:
    with trio.fail_after(PATIENCE), open_root_record(session, Clock()) as root:
        async with open_listener(control_address(root)) as door, trio.open_nursery() as nursery:
            answers: list[str] = []

            async def ask() -> None:
                try:
                    await send_request(root, StopAgent(name="main"))
                except ConfigInvalid as exc:
                    answers.append(str(exc))

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert answers == []
            async with open_control_server(door, count):
                while not answers:  # noqa: ASYNC110 - the simplest reader there is
                    await trio.sleep(0.001)
    assert answers == ["agent: only the user can send this request, not an agent"]


def test_no_root_starts_while_the_root_lock_is_held(session: SessionDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_lock, "LOCK_TIMEOUT", 0.01)
    with hold_root_lock(session) as none:
        assert none is None
        with pytest.raises(ConfigInvalid, match="is being started or resumed"), open_root_record(session, Clock()):
            raise AssertionError("it has begun")
    with open_root_record(session, Clock()) as root:
        assert root.is_alive()
        with hold_root_lock(session) as found:
            assert found == root
