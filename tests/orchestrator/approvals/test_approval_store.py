"""Files of approvals, the key that signs them, rules for who may decide one, and decisions by rule."""

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import msgspec
import pytest

from coterie.agents.permissions.plan_approval import Approver
from coterie.errors import ConfigInvalid
from coterie.orchestrator.approvals.approval_policy import (
    ApprovalDecision,
    decide_by_rule,
    rejection_reason,
)
from coterie.orchestrator.approvals.store import (
    KEY_BYTES,
    Approval,
    ApprovalKey,
    ApprovalStore,
    read_approvals,
)
from coterie.session_directory import SessionDirectory
from tests.orchestrator.approvals.approval_harness import plan

FIRST = Approval(id="plan-1", claim=plan(files=("a.txt", "ä.txt")), asked_at=1.5)


@pytest.fixture
def records(session: SessionDirectory) -> ApprovalStore:
    made = ApprovalStore.of(session, ApprovalKey.of_session(session.id))
    made.save(FIRST)
    return made


def path_of(records: ApprovalStore, id_: str = "plan-1") -> Path:
    return records.directory / f"{id_}.json"


def test_records_are_loaded_unchanged_oldest_first(session: SessionDirectory, records: ApprovalStore) -> None:
    earlier = attrs.evolve(FIRST, id="plan-2", asked_at=1.0)
    records.save(earlier)
    decided = attrs.evolve(FIRST, state="approved", by="lead", feedback="Good.", decided_at=2.0, is_past=True)
    records.save(decided)
    found = read_approvals(session)
    assert [(kept.approval, kept.doubt) for kept in found] == [(earlier, None), (decided, None)]


def test_files_are_private(records: ApprovalStore, tmp_path: Path) -> None:
    [key] = (tmp_path / "home" / "keys").iterdir()
    paths = (records.directory, path_of(records), key.parent, key)
    assert [oct(path.stat().st_mode & 0o777) for path in paths] == ["0o700", "0o600", "0o700", "0o600"]


def edited(change: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        read = msgspec.json.decode(content)
        change(read)
        return msgspec.json.encode(read)

    return edit


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (edited(lambda file: file["approval"].update(state="approved")), "by another process than the root"),  # type: ignore[attr-defined]
        (edited(lambda file: file["approval"]["claim"].update(plan="rm -r /")), "by another process than the root"),  # type: ignore[index]
        (edited(lambda file: file.update(mac="")), "by another process than the root"),
        (edited(lambda file: file.update(mac="ÿ")), "by another process than the root"),
        (msgspec.json.format, "by another process than the root"),
        (edited(lambda file: file.pop("mac")), "it cannot be read"),
        (edited(lambda file: file["approval"].update(state="granted")), "it cannot be read"),  # type: ignore[attr-defined]
        (edited(lambda file: file.update(v=2)), "unknown version"),
        (lambda content: content[:-40], "it cannot be read"),
        (lambda _: b"", "it cannot be read"),
        (lambda content: content.replace(b'"plan-1"', b"[" * 100_000), "it cannot be read"),
    ],
    ids=["state", "plan", "no mac", "odd mac", "spaces", "mac gone", "bad state", "version", "torn", "empty", "nested"],
)
def test_changed_file_is_not_trusted(
    session: SessionDirectory, records: ApprovalStore, change: Callable[[bytes], bytes], doubt: str
) -> None:
    path = path_of(records)
    path.write_bytes(change(path.read_bytes()))
    [kept] = read_approvals(session)
    assert kept.doubt is not None
    assert doubt in kept.doubt


def test_key_is_created_once_for_each_session_and_is_not_shown(session: SessionDirectory, tmp_path: Path) -> None:
    one, again, other = (ApprovalKey.of_session(id_) for id_ in (session.id, session.id, "other"))
    assert again.verifies(b"x", one.sign(b"x"))
    assert not other.verifies(b"x", one.sign(b"x"))
    assert not one.verifies(b"y", one.sign(b"x"))
    assert (tmp_path / "home" / "keys" / session.id).read_text().strip() not in repr(one)
    assert "secret" not in repr(one)


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (None, 0o600, "cannot be read"),
        ("no hex", 0o600, "cannot be read"),
        ("ab" * (KEY_BYTES - 1), 0o600, "the file is no signing key of 32 bytes; delete it"),
        ("ab" * KEY_BYTES, 0o640, "other users can access; run chmod 600 on it"),
    ],
)
def test_unusable_key_is_a_one_line_error(
    session: SessionDirectory, tmp_path: Path, content: str | None, mode: int, reason: str
) -> None:
    path = tmp_path / "home" / "keys" / session.id
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_text(content)
        os.chmod(path, mode)  # noqa: PTH101 - whatever the umask
    with pytest.raises(ConfigInvalid) as caught:
        ApprovalKey.find(session.id)
    assert caught.value.source == str(path)
    assert reason in caught.value.reason
    assert "\n" not in str(caught.value)


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
        "main": None if approver == "lead" else "only the user can decide approval plan-1",
        "builder": "an agent cannot decide its own request; wait for the decision",
        "spy": "only the lead (first agent) or the user can decide approvals",
    }
    assert refusal == expected[who]
    assert decision.by == ANSWERS[who]


def test_decision_of_its_own_request_or_for_another_requester_is_rejected() -> None:
    own = attrs.evolve(OPEN, claim=plan(agent="main", approver="lead"))
    assert rejection_reason(ApprovalDecision(id="plan-1", approve=True, agent="main"), own) is not None
    decision = ApprovalDecision(id="plan-1", approve=True, agent="main", requester="bulider")
    assert rejection_reason(decision, OPEN) == "approval plan-1 was requested by builder, not bulider; correct the name"


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


def test_rule_rejects_a_plan_without_files_and_every_plan_without_a_valid_pattern(project: Path) -> None:
    ruling = decide_by_rule(["tests/**", "docs/**"], [], project)
    feedback = "Name the files that the plan changes; only tests/**, docs/** may be changed."
    assert (ruling.approve, ruling.feedback) == (False, feedback)
    for paths in ([], ["../x"], ["tests/["]):
        assert not decide_by_rule(paths, ["tests/x"], project).approve
