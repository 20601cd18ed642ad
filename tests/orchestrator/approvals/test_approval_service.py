"""Approval service of a running root: each request is stored, then announced, and decided once."""

from pathlib import Path

import pytest
import trio

from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.events.root_events import ApprovalAsked, ApprovalDecided
from coterie.agents.permissions.types import AllowOnce, DenyCall
from coterie.agents.root_link.remote_services import NO_USER
from coterie.files import Operation, file_faults
from coterie.mailbox.message_bodies import PlanApprovalRequest
from coterie.orchestrator.approvals import service
from coterie.orchestrator.approvals.approval_policy import AnswerInvalid, ApprovalDecision, ApprovalNotStored
from coterie.session_directory import SessionDirectory
from tests.orchestrator.approvals.approval_harness import Person, by_lead, open_approval_harness, plan, settle
from tests.seeded_faults import SeededFaults

BY_HUMAN = plan(approver="human")


async def test_plan_is_stored_and_announced_before_the_wait(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        await bench.wait_for(plan(files=("a.txt",)), nursery)
        assert bench.kept("plan-1").state == "open"
        asked = ApprovalAsked(
            id="plan-1", what="plan", name="builder", incarnation=1, by="lead", subject="1. Write a.txt."
        )
        assert bench.approval_events == [asked]
        [letter] = await bench.mail()
        body = PlanApprovalRequest(plan="1. Write a.txt.", agent="builder", files=("a.txt",))
        assert (letter.id, letter.sender.kind, letter.body) == ("plan-1", "system", body.to_body())
        assert not bench.approvals.is_approved("builder")

        await bench.approvals.decide(by_lead("plan-1", requester="builder"))
        await settle()
        assert [(each.state, each.by) for each in bench.judged] == [("approved", "lead")]
        assert bench.kept("plan-1") == bench.judged[0]
        assert bench.approval_events[1:] == [
            ApprovalDecided(id="plan-1", name="builder", verdict="approved", by="lead")
        ]
        assert bench.approvals.is_approved("builder")
        assert not bench.approvals.is_approved("spy")


async def test_rejected_plan_may_be_resubmitted_as_a_new_request(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        await bench.wait_for(plan(), nursery)
        await bench.approvals.decide(by_lead("plan-1", approve=False, feedback="Where are the tests?"))
        await settle()
        await bench.wait_for(plan(), nursery)
        assert [(each.state, each.feedback) for each in bench.judged] == [("rejected", "Where are the tests?")]
        for stale in (by_lead("plan-1"), ApprovalDecision(id="plan-1", approve=True)):
            with pytest.raises(AnswerInvalid, match="plan-1 is no longer open: rejected by the lead"):
                await bench.approvals.decide(stale)
        assert [by for by, _ in bench.refusals] == ["lead", "human"]
        with pytest.raises(AnswerInvalid, match=r"unknown approval 'paln-1'; did you mean plan-1 or plan-2\?"):
            await bench.approvals.decide(by_lead("paln-1"))
        assert not bench.approvals.is_approved("builder")
        await bench.approvals.decide(by_lead("plan-2"))


async def test_only_the_first_of_two_concurrent_answers_counts(session: SessionDirectory) -> None:
    outcomes: list[str] = []
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        await bench.wait_for(plan(), nursery)

        async def answer(decision: ApprovalDecision) -> None:
            try:
                outcomes.append((await bench.approvals.decide(decision)).state)
            except AnswerInvalid as exc:
                outcomes.append(exc.reason)

        async with trio.open_nursery() as both:
            both.start_soon(answer, by_lead("plan-1"))
            both.start_soon(answer, ApprovalDecision(id="plan-1", approve=False, feedback="No."))
    [counted] = [outcome for outcome in outcomes if outcome in ("approved", "rejected")]
    [other] = [outcome for outcome in outcomes if "is no longer open" in outcome]
    assert counted in other
    assert [each.state for each in bench.judged] == [counted]


async def test_next_incarnation_gets_the_decision_of_an_open_plan(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        await bench.ask_and_crash(plan())
        await bench.wait_for(plan(incarnation=2), nursery)
        assert len(await bench.mail()) == 1
        assert bench.kept("plan-1").claim.incarnation == 2
        await bench.approvals.decide(by_lead("plan-1", approve=False, feedback="No."))
        await settle()
        # As if the second incarnation had died before it withdrew the request.
        await bench.wait_for(plan(incarnation=3), nursery)
        assert [(each.id, each.feedback) for each in bench.judged] == [("plan-1", "No.")] * 2
        assert [type(event) for event in bench.approval_events] == [ApprovalAsked, ApprovalDecided]


async def test_new_plan_withdraws_an_open_plan(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        await bench.ask_and_crash(plan())
        await bench.wait_for(plan("2. Otherwise.", incarnation=2), nursery)
        assert (bench.kept("plan-1").state, bench.kept("plan-1").by) == ("withdrawn", "builder")
        with pytest.raises(AnswerInvalid, match="withdrawn, because the agent made another request"):
            await bench.approvals.decide(by_lead("plan-1"))
        await bench.approvals.decide(by_lead("plan-2"))


async def test_approvals_of_an_agent_end_with_it(session: SessionDirectory) -> None:
    async with open_approval_harness(session) as bench:
        await bench.ask_and_crash(plan())
        await bench.approvals.decide(by_lead("plan-1"))
        await bench.ask_and_crash(plan("later", incarnation=3))
        await bench.approvals.close_for_agent("builder", last=2)
        assert not bench.approvals.is_approved("builder")
        assert (bench.kept("plan-1").is_past, bench.kept("plan-2").state) == (True, "open")
        await bench.approvals.close_for_agent("builder")
        assert bench.kept("plan-2").state == "withdrawn"
        # One of that name that says the same asks for itself.
        await bench.ask_and_crash(plan(incarnation=4))
        assert bench.kept("plan-3").state == "open"


async def test_rule_decides_immediately_without_asking(session: SessionDirectory) -> None:
    by_rule = plan(approver="rule", paths=("tests/**",), files=("tests/test_a.py",))
    async with open_approval_harness(session, user=Person()) as bench:
        await bench.ask(by_rule)
        await bench.ask(plan("2.", approver="rule", paths=("tests/**",), files=("src/a.py",), agent="other"))
        assert [(each.state, each.by) for each in bench.judged] == [("approved", "rule"), ("rejected", "rule")]
        assert bench.judged[1].feedback == "Only tests/** may be changed, and not src/a.py."
        assert bench.approvals.is_approved("builder")
        assert not bench.approvals.is_approved("other")
        assert await bench.mail() == []


async def test_user_at_the_terminal_decides_a_plan(session: SessionDirectory) -> None:
    person = Person()
    async with open_approval_harness(session, user=person) as bench, trio.open_nursery() as nursery:
        await bench.wait_for(BY_HUMAN, nursery)
        [question] = person.questions
        assert (question.agent, question.subject) == ("builder", "1. Write a.txt.")
        assert await bench.mail() == []
        with pytest.raises(AnswerInvalid, match="only the user can decide"):
            await bench.approvals.decide(by_lead("plan-1"))
        person.answer(DenyCall("Not today."))
        await settle()
        assert [(each.state, each.by, each.feedback) for each in bench.judged] == [("rejected", "human", "Not today.")]
        person.answer(AllowOnce())
        await bench.ask(plan("2.", approver="human"))
        assert bench.judged[1].state == "approved"


async def test_request_stays_open_without_a_terminal_and_a_shell_answer_withdraws_it(session: SessionDirectory) -> None:
    person = Person()
    async with open_approval_harness(session, user=person) as bench, trio.open_nursery() as nursery:
        person.answer(DenyCall(NO_USER))
        await bench.wait_for(BY_HUMAN, nursery)
        assert bench.kept("plan-1").state == "open"
        await bench.approvals.decide(ApprovalDecision(id="plan-1", approve=False, feedback="By a shell."))
        await settle()
        await bench.wait_for(plan("2.", approver="human"), nursery)
        await bench.approvals.decide(ApprovalDecision(id="plan-2", approve=True))
        await settle()  # otherwise the prompt would stay open and the block would not end
        assert [each.by for each in bench.judged] == ["human", "human"]


async def test_user_is_asked_when_the_lead_is_missing(session: SessionDirectory) -> None:
    person = Person()
    person.answer(AllowOnce())
    async with open_approval_harness(session, user=person, has_lead=False) as bench:
        await bench.ask(plan())
        assert [(each.state, each.by) for each in bench.judged] == [("approved", "human")]
        [failure] = [event for event in bench.events if isinstance(event, LayerFailed)]
        assert "the lead was not asked about a plan" in failure.reason


async def test_unsaved_request_is_not_raised_and_unsaved_answer_leaves_it_open(session: SessionDirectory) -> None:
    full = SeededFaults(seed=1, full=1.0)
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        with file_faults(full), pytest.raises(ApprovalNotStored, match="could not be stored"):
            await bench.approvals.request(plan(), session.project)
        assert bench.approval_events == []
        await bench.wait_for(plan(), nursery)
        with file_faults(full), pytest.raises(AnswerInvalid, match="the answer was not stored"):
            await bench.approvals.decide(by_lead("plan-2"))
        assert bench.judged == []
        assert not bench.approvals.is_approved("builder")
        with file_faults(full):
            await bench.approvals.withdraw(plan(), "it is tired")
        assert isinstance(bench.events[-1], LayerFailed)
        await bench.approvals.decide(by_lead("plan-2"))
    assert [each.state for each in bench.judged] == ["approved"]


class FullMailbox:
    """Disk without space for mail."""

    def before(self, operation: Operation, path: Path, size: int) -> int:
        if operation == "write" and path.suffix == ".log":
            raise OSError(28, "No space left on device", str(path))
        return size


async def test_lead_is_notified_when_the_disk_has_space_again(
    session: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RETRY_SECONDS", 0.01)
    async with open_approval_harness(session) as bench, trio.open_nursery() as nursery:
        with file_faults(FullMailbox()):
            nursery.start_soon(bench.ask, plan())
            while not any(isinstance(event, LayerFailed) for event in bench.events):  # noqa: ASYNC110 - no event
                await trio.sleep(0.001)
        while not (letters := await bench.mail()):  # noqa: ASYNC110 - as above
            await trio.sleep(0.001)
        assert [letter.kind for letter in letters] == ["plan_approval_request"]
        await bench.approvals.decide(by_lead("plan-1"))
    assert [type(event) for event in bench.events].count(LayerFailed) == 1
