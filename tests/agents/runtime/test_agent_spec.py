"""What an agent's process is started with arrives as it was."""

from decimal import Decimal
from pathlib import Path

from coterie.agents.runtime.agent_main import combine_lead_task
from coterie.agents.runtime.spec import AgentSpec
from coterie.agents.settings import SETTINGS, Settings
from coterie.agents.worktrees.worktree import Worktree
from coterie.mailbox.envelope import MessageId
from coterie.mailbox.validation import MessageDigest

GIVEN = {
    "model": "haiku",
    "max_budget_usd": Decimal("0.1"),
    "max_seconds": 2.5,
    "thinking": True,
    "memory_directory": Path("/var/lib/notes"),
    "permissions.mode": "acceptEdits",
    "permissions.allow": ("Bash(git status:*)", "Read"),
    "layers.clearing.keep": 7,
}

WORKTREE = Worktree(
    path=Path("/project/.coterie/worktrees/w"),
    directory=Path("/project/.coterie/worktrees/w/below"),
    origin=Path("/project/below"),
    repository=Path("/project/.git"),
    branch="coterie/s/scout",
    base="0" * 40,
    record=Path("/home/worktree.json"),
)


def test_a_duty_is_read_as_it_was_written() -> None:
    settings = Settings.build(
        GIVEN, {"permissions.allow": ("a.toml", "b.toml"), "model": ("flag",)}, frozenset({"model"})
    )
    duty = AgentSpec(
        session="20260101-000000-abcdef",
        name="scout",
        incarnation=3,
        parent="main",
        report=MessageId("r"),
        task='say "hello"\n',
        model="m",
        settings=settings,
        server="http://127.0.0.1:1",
        stays=True,
        directory="/project/.coterie/worktrees/w/below",
        worktree=WORKTREE,
        above=(settings, Settings()),
        memory="local",
        keys="5ec7e7",
        believed=(MessageDigest("d1"), MessageDigest("d2")),
    )
    read = AgentSpec.from_bytes(duty.to_bytes())
    assert read == duty
    assert "5ec7e7" not in repr(duty)
    assert {key: read.settings.item_sources(key) for key in SETTINGS} == {
        key: settings.item_sources(key) for key in SETTINGS
    }
    assert [key for key in SETTINGS if read.settings.is_final(key)] == ["model"]


def test_a_lead_that_was_never_told_its_task_is_told_it_with_the_words_of_the_resume() -> None:
    assert combine_lead_task("Look.", "Look.") == "Look."
    assert combine_lead_task("Look.", "") == "Look."
    assert combine_lead_task("Look.", "Go on.") == "Look.\n\nGo on."
