"""Rules for who may decide an approval, and decisions by rule."""

from pathlib import Path

import attrs
import pytest

from coterie.agents.permissions.plan_approval import Approver
from coterie.orchestrator.approvals.approval_policy import (
    ApprovalDecision,
    decide_by_rule,
    rejection_reason,
)
from coterie.orchestrator.approvals.store import Approval
from tests.orchestrator.approvals.approval_harness import plan

OPEN = Approval(id="plan-1", claim=plan(), asked_at=1.0)
ANSWERS = {None: "human", "main": "lead", "builder": "builder", "spy": "spy"}


@pytest.mark.parametrize("who", ANSWERS)
@pytest.mark.parametrize("approver", ["lead", "human", "rule"])
@pytest.mark.parametrize("approve", [True, False])
def test_lead_decides_its_approvals_and_user_decides_all(who: str | None, approver: Approver, approve: bool) -> None:
    decision = ApprovalDecision(id="plan-1", approve=approve, agent=who)
    refusal = rejection_reason(decision, attrs.evolve(OPEN, claim=plan(approver=approver)))
    expected = {
        None: None,
        "main": None if approver == "lead" else "only the user can decide plan-1",
        "builder": "an agent cannot decide its own request",
        "spy": "only the lead or the user can decide",
    }
    assert refusal == expected[who]
    assert decision.by == ANSWERS[who]


def test_agent_cannot_decide_its_own_request() -> None:
    own = attrs.evolve(OPEN, claim=plan(agent="main", approver="lead"))
    assert rejection_reason(ApprovalDecision(id="plan-1", approve=True, agent="main"), own) is not None


def test_decision_for_another_requester_is_rejected() -> None:
    decision = ApprovalDecision(id="plan-1", approve=True, agent="main", requester="bulider")
    assert rejection_reason(decision, OPEN) == "plan-1 was requested by builder, not by bulider"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Tests, sources, and links from the one into the other."""
    root = tmp_path / "project"
    for name in ("tests", "src"):
        (root / name).mkdir(parents=True)
    (root / "src" / "a.py").touch()
    (root / "tests" / "link.py").symlink_to(root / "src" / "a.py")
    (root / "tests" / "away").symlink_to("/etc")
    (root / "tests" / "round").symlink_to("round")
    (root / "inside.py").symlink_to(root / "tests" / "test_a.py")
    return root


@pytest.mark.parametrize(
    "file",
    ["tests/test_a.py", "tests/new/deep/x.py", "./tests/x", "src/../tests/x", "inside.py", "tests", "{root}/tests/x"],
)
def test_rule_approves_files_that_match(project: Path, file: str) -> None:
    assert decide_by_rule(["tests/**"], [file.format(root=project)], project).approve


@pytest.mark.parametrize(
    "file",
    [
        "src/a.py",
        "tests/../src/a.py",
        "../tests/x",
        "/etc/passwd",
        "{root}/src/a.py",
        "tests/link.py",
        "tests/away/passwd",
        "tests/round",
        "tests2/x",
        "~/tests/x",
        "",
        ".",
        "tests/\0",
        "src/tests/x",
    ],
)
def test_rule_rejects_files_that_do_not_match(project: Path, file: str) -> None:
    ruling = decide_by_rule(["tests/**"], ["tests/ok.py", file.format(root=project)], project)
    assert not ruling.approve
    assert ruling.feedback.startswith("Only tests/** may be changed, and not ")


def test_rule_follows_a_symlink_above_the_project_but_not_in_the_pattern(project: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(project)
    assert decide_by_rule(["tests/**"], ["tests/x"], tmp_path / "way").approve
    (project / "docs").symlink_to("/etc")
    assert not decide_by_rule(["docs/**"], ["docs/passwd"], project).approve


def test_rule_rejects_a_plan_without_files(project: Path) -> None:
    ruling = decide_by_rule(["tests/**", "docs/**"], [], project)
    feedback = "Name the files that the plan changes; only tests/**, docs/** may be changed."
    assert (ruling.approve, ruling.feedback) == (False, feedback)


@pytest.mark.parametrize("paths", [(), ("../x",), ("tests/[",)])
def test_rule_with_invalid_pattern_rejects_every_plan(project: Path, paths: tuple[str, ...]) -> None:
    assert not decide_by_rule(paths, ["tests/x"], project).approve
