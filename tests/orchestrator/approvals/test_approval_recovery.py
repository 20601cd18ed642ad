"""Approvals after the death of a root: signed records count, forged ones do not."""

from pathlib import Path

import attrs
import msgspec
import pytest
import trio

from coterie.agents.events.root_events import ApprovalAsked, ApprovalRejected
from coterie.orchestrator.approvals.approval_policy import AnswerInvalid, ApprovalDecision
from coterie.orchestrator.approvals.store import Approval, ApprovalKey, ApprovalStore
from coterie.session_directory import SessionDirectory
from tests.orchestrator.approvals.approval_harness import by_lead, open_approval_harness, permission, plan, settle

FOREIGN = "it was written or changed by another process than the root"


async def test_open_plan_is_restored_and_lead_is_notified_once(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench:
        await bench.ask_and_crash(plan())
        before = bench.kept("plan-1")
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        assert bench.approval_events == []
        await bench.wait_for(plan(incarnation=2), nursery)
        # It is stored once more, under the same id: so it is delivered once.
        assert [letter.id for letter in await bench.mail()] == ["plan-1"]
        assert bench.kept("plan-1") == attrs.evolve(before, claim=plan(incarnation=2))
        await bench.approvals.decide(by_lead("plan-1"))
        await bench.wait_for(plan("another", agent="other"), nursery)
        assert [event.id for event in bench.approval_events if isinstance(event, ApprovalAsked)] == ["plan-2"]
        await bench.approvals.decide(by_lead("plan-2"))
    assert bench.judged[0].state == "approved"


async def test_decision_is_restored_by_the_next_root(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench:
        await bench.ask_and_crash(plan())
        await bench.approvals.decide(by_lead("plan-1", feedback="Good."))
        await bench.ask_and_crash(plan(agent="other"))
        await bench.approvals.decide(by_lead("plan-2", approve=False, feedback="No."))
    async with open_approval_harness(session) as bench:
        assert bench.approvals.is_approved("builder")
        await bench.ask(plan(incarnation=2))
        await bench.ask(plan(agent="other", incarnation=2))
        assert [(each.state, each.feedback) for each in bench.judged] == [("approved", "Good."), ("rejected", "No.")]
        with pytest.raises(AnswerInvalid, match="no longer open"):
            await bench.approvals.decide(by_lead("plan-2"))


@pytest.mark.parametrize("state", ["open", "rejected"])
async def test_approval_written_into_the_file_is_rejected(session: SessionDirectory, state: str) -> None:
    """The plan stays unapproved, an event is emitted, and a new request notifies the lead."""
    async with open_approval_harness(session) as bench:
        await bench.ask_and_crash(plan())
        if state == "rejected":
            await bench.approvals.decide(by_lead("plan-1", approve=False, feedback="No."))
        await bench.mail()
        bench.forge("plan-1", state="approved", by="lead", decided_at=1.0)
        assert not bench.approvals.is_approved("builder")
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        assert bench.approval_events == [ApprovalRejected(id="plan-1", by=str(bench.path("plan-1")), reason=FOREIGN)]
        assert not bench.approvals.is_approved("builder")
        for decision in (by_lead("plan-1"), ApprovalDecision(id="plan-1", approve=True)):
            with pytest.raises(AnswerInvalid, match="another process changed its file"):
                await bench.approvals.decide(decision)
        await bench.wait_for(plan(incarnation=2), nursery)
        assert [letter.id for letter in await bench.mail()] == ["plan-2"]
        assert bench.kept("plan-1").state == "withdrawn"
        assert bench.judged == []
        await bench.approvals.decide(by_lead("plan-2"))
        await settle()
        assert [(each.id, each.state) for each in bench.judged] == [("plan-2", "approved")]
    async with open_approval_harness(session) as bench:
        assert bench.approval_events == []


async def test_forged_record_of_an_unmade_request_is_rejected(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench:
        await bench.ask_and_crash(plan())
    made = Approval(id="plan-7", claim=plan("mine", agent="spy"), asked_at=1.0, state="approved", by="human")
    ApprovalStore(session.directory / "approvals", ApprovalKey(b"x" * 32)).save(made)
    bench.path("plan-8").write_bytes(b'{"v": 1, "approval": {"id": "plan-8"')
    async with open_approval_harness(session) as bench:
        reasons = {event.id: event.reason for event in bench.approval_events if isinstance(event, ApprovalRejected)}
        assert reasons.keys() == {"plan-7", "plan-8"}
        assert reasons["plan-7"] == FOREIGN
        assert reasons["plan-8"].startswith("it cannot be read: ")
        assert not bench.approvals.is_approved("spy")
        await bench.ask_and_crash(plan("mine", agent="spy"))
        assert bench.path("plan-9").exists()  # no number is used twice, even one of a forged file


async def test_renamed_signed_record_is_rejected(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench:
        await bench.ask_and_crash(plan())
        await bench.approvals.decide(by_lead("plan-1"))
        await bench.ask_and_crash(plan(agent="spy"))
        bench.path("plan-2").write_bytes(bench.path("plan-1").read_bytes())
    async with open_approval_harness(session) as bench:
        assert [event.id for event in bench.approval_events if isinstance(event, ApprovalRejected)] == ["plan-2"]
        assert not bench.approvals.is_approved("spy")
        assert bench.approvals.is_approved("builder")


async def test_records_are_unverified_without_their_key(session: SessionDirectory, tmp_path: Path) -> None:
    async with open_approval_harness(session) as bench:
        await bench.ask_and_crash(plan())
        await bench.approvals.decide(by_lead("plan-1"))
    (tmp_path / "home" / "keys" / session.id).unlink()
    async with open_approval_harness(session) as bench:
        assert not bench.approvals.is_approved("builder")
        assert [reason for _, reason in bench.refusals] == [FOREIGN]


async def test_permission_is_used_once(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        await bench.wait_for(permission(), nursery)
        assert bench.kept("permission-1").subject == "Bash make"
        with pytest.raises(AnswerInvalid, match="only the user can decide"):
            await bench.approvals.decide(by_lead("permission-1"))
        await bench.approvals.decide(ApprovalDecision(id="permission-1", approve=True))
        await settle()
        await bench.wait_for(permission(), nursery)
        assert [each.id for each in bench.judged] == ["permission-1"]
        await bench.approvals.decide(ApprovalDecision(id="permission-2", approve=False, feedback="Once is enough."))
    assert bench.judged[1].feedback == "Once is enough."


async def test_permission_is_delivered_to_next_incarnation_but_not_next_root(session: SessionDirectory) -> None:
    """After a kill of the root it is unknown if the permission was used, so it counts as used."""
    async with open_approval_harness(session) as bench:
        await bench.ask_and_crash(permission())
        await bench.approvals.decide(ApprovalDecision(id="permission-1", approve=True))
        await bench.ask(permission(incarnation=2))
        assert [each.state for each in bench.judged] == ["approved"]
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        await bench.wait_for(permission(incarnation=3), nursery)
        assert bench.judged == []
        await bench.approvals.decide(ApprovalDecision(id="permission-2", approve=True))


async def test_forged_permission_of_a_future_incarnation_is_superseded(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench:
        await bench.ask_and_crash(permission())
        claim = {**msgspec.to_builtins(bench.kept("permission-1").claim), "incarnation": 99}
        bench.forge("permission-1", state="approved", claim=claim)
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        await bench.wait_for(permission(incarnation=2), nursery)
        assert (bench.kept("permission-1").state, bench.kept("permission-2").state) == ("withdrawn", "open")
        assert bench.judged == []
        nursery.cancel_scope.cancel()
