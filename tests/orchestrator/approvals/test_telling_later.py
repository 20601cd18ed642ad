"""A plan whose request the lead's mailbox did not take is told to the lead later."""

from pathlib import Path

import pytest
import trio

from coterie.agents.events import Event, LayerFailed
from coterie.clock import Clock
from coterie.files import Operation, file_faults
from coterie.orchestrator.approvals import approvals as module
from coterie.orchestrator.approvals.judging import Decision
from coterie.orchestrator.approvals.opening import open_approvals
from coterie.orchestrator.approvals.record import Claim
from coterie.orchestrator.keys import SessionKeys
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.session import MAIN, Session
from coterie.orchestrator.tree.announcing import Announcer


class FullMailbox:
    """The disk has no room for mail."""

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """As `FaultHook.before`."""
        if operation == "write" and path.suffix == ".log":
            raise OSError(28, "No space left on device", str(path))
        return size


async def test_the_lead_hears_of_a_plan_once_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(module, "ASK_AGAIN", 0.01)
    session = Session.create(tmp_path, Clock(), task="t", model="m")
    failures: list[LayerFailed] = []
    has_failed = trio.Event()

    def tell(event: Event) -> None:
        if isinstance(event, LayerFailed):
            failures.append(event)
            has_failed.set()

    plan = Claim(what="plan", agent="builder", incarnation=1, approver="lead", plan="1. Write a.txt.")
    with trio.fail_after(10), PostOffice.of(session, Clock(), SessionKeys.new(), tell=tell) as office:
        await office.roster.join(MAIN)
        approvals = await open_approvals(office, Announcer(office, tell).sender, tell, None)
        async with trio.open_nursery() as nursery:
            with file_faults(FullMailbox()):
                nursery.start_soon(approvals.judged, plan, tmp_path)
                await has_failed.wait()
            async with office.files.open_inbox(MAIN, 1) as inbox:
                while not (deliveries := inbox.take_nowait()):
                    await inbox.wait()
            [delivery] = deliveries
            assert delivery.envelope.kind == "plan_approval_request"
            await approvals.decide(Decision(id="plan-1", approve=True, agent=MAIN))
    assert len(failures) == 1
