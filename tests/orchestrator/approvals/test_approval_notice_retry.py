"""Retry of a plan notification that the lead's mailbox did not accept."""

from pathlib import Path

import pytest
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.clock import Clock
from coterie.files import Operation, file_faults
from coterie.mailbox.transports.session_mail import SessionKeys, SessionMail
from coterie.orchestrator.approvals import service as module
from coterie.orchestrator.approvals.approval_policy import ApprovalDecision
from coterie.orchestrator.approvals.service import open_approvals
from coterie.orchestrator.approvals.store import ApprovalSubject
from coterie.orchestrator.supervisor.agent_status import StatusPublisher
from coterie.session_directory import MAIN, SessionDirectory


class FullMailbox:
    """The disk has no room for mail."""

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """As `FaultHook.before`."""
        if operation == "write" and path.suffix == ".log":
            raise OSError(28, "No space left on device", str(path))
        return size


async def test_lead_is_notified_when_the_disk_has_space_again(
    session: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    failures: list[LayerFailed] = []
    has_failed = trio.Event()

    def tell(event: Event) -> None:
        if isinstance(event, LayerFailed):
            failures.append(event)
            has_failed.set()

    plan = ApprovalSubject(what="plan", agent="builder", incarnation=1, approver="lead", plan="1. Write a.txt.")
    with trio.fail_after(10), SessionMail.open(session, Clock(), SessionKeys.new()) as office:
        await office.roster.join(MAIN)
        approvals = await open_approvals(office, StatusPublisher(office, tell).sender, tell)
        async with trio.open_nursery() as nursery:
            with file_faults(FullMailbox()):
                nursery.start_soon(approvals.request, plan, session.project)
                await has_failed.wait()
            async with office.files.open_inbox(MAIN, 1) as inbox:
                while not (deliveries := inbox.take_nowait()):
                    await inbox.wait()
            [delivery] = deliveries
            assert delivery.envelope.kind == "plan_approval_request"
            await approvals.decide(ApprovalDecision(id="plan-1", approve=True, agent=MAIN))
    assert len(failures) == 1
