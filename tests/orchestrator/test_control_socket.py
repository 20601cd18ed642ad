"""The control socket of a root: whoever comes early waits, and an agent's shell is turned away."""

from pathlib import Path

import pytest
import trio
import trio.testing

from coterie.agents.errors import ConfigInvalid
from coterie.clock import Clock
from coterie.orchestrator import root_record
from coterie.orchestrator.control_socket.asking import ask_root
from coterie.orchestrator.control_socket.reception import open_door, open_reception
from coterie.orchestrator.control_socket.requests import (
    Answer,
    Fate,
    Fates,
    PostMail,
    Request,
    StopAgent,
    control_address,
)
from coterie.orchestrator.root_record import keep_root_out, open_root_record
from coterie.orchestrator.session import Session

PATIENCE = 10.0


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    return Session.create(tmp_path, Clock(), task="t", model="m")


async def count(request: Request) -> Answer:
    """Say how much was asked for."""
    assert isinstance(request, PostMail)
    return Fates(fates=(Fate(recipient=request.to, refusal=f"{len(request.body)} characters"),))


async def test_whoever_descends_from_the_root_is_told_so_however_long_the_message_is(session: Session) -> None:
    with trio.fail_after(PATIENCE), open_root_record(session, Clock()) as root:
        async with open_door(control_address(root)) as door, open_reception(door, count):
            with pytest.raises(ConfigInvalid, match=r"no agent; agents write to each other with SendMessage$"):
                await ask_root(root, PostMail(to="main", body="x" * 900_000))
            with pytest.raises(ConfigInvalid, match=r"only the user can ask for this, and no agent$"):
                await ask_root(root, StopAgent(name="main"))


async def test_a_request_that_comes_before_the_root_is_ready_waits_for_it(session: Session) -> None:
    with trio.fail_after(PATIENCE), open_root_record(session, Clock()) as root:
        async with open_door(control_address(root)) as door, trio.open_nursery() as nursery:
            answers: list[str] = []

            async def ask() -> None:
                try:
                    await ask_root(root, StopAgent(name="main"))
                except ConfigInvalid as exc:
                    answers.append(str(exc))

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert answers == []
            async with open_reception(door, count):
                while not answers:  # noqa: ASYNC110 - the simplest reader there is
                    await trio.sleep(0.001)
    assert answers == ["agent: only the user can ask for this, and no agent"]


def test_no_root_begins_while_it_is_kept_out(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_record, "LOCK_TIMEOUT", 0.01)
    with keep_root_out(session) as none:
        assert none is None
        with pytest.raises(ConfigInvalid, match="is being taken up"), open_root_record(session, Clock()):
            raise AssertionError("it has begun")
    with open_root_record(session, Clock()) as root:
        assert root.is_alive()


def test_a_root_that_lives_is_given(session: Session) -> None:
    with open_root_record(session, Clock()) as ours, keep_root_out(session) as found:
        assert found == ours
