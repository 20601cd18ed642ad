"""Team files: all keys, all problems with their lines, and docs/teams.md."""

import os
import re
from decimal import Decimal
from pathlib import Path

import pytest

from coterie.agents.definitions.definition_files import MAX_BYTES
from coterie.agents.definitions.team_definition import TeamDefinition, TeamMember, TeamTask
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.orchestrator.teams.team_file import LEAD_KEYS, MEMBER_KEYS, TASK_KEYS, TEAM_KEYS, load_team
from coterie.orchestrator.teams.team_tables import TeamInvalid

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "teams.md").read_text()
DOCUMENTED_FLAWS = """# The flaws of the page.
name = "flawed"
coordinator = true

[[members]]
name = "scout"
type = "explorr"
model = "sonnet"

[[members]]
name = "Scout"
type = "worker"
prompt = "Go."
budget_usd = 0

[[tasks]]
id = "map"
subject = "Find all that the change touches"
owner = "scout"
blocked_by = ["build"]

[[tasks]]
id = "build"
subject = "Make the change"
blocked_by = ["map"]
"""

FLAWS: list[tuple[str | bytes, int, str]] = [
    ('a = 1\nnme = "x"', 2, "unknown key 'nme'; did you mean name?"),
    ('[[members]]\nname = "a"\n\nbugdet_usd = 1', 4, "unknown key 'bugdet_usd'; did you mean budget_usd?"),
    ('[lead]\ntype = "x"', 2, "unknown key 'type'; there is agent, model"),
    ('[[members]]\nname = "a"\ntype = "explorer"', 3, "unknown agent type 'explorer'; did you mean explore or worker?"),
    ('[lead]\nagent = "wrker"', 2, "unknown agent type 'wrker'; did you mean worker?"),
    ('[[members]]\nname = "a"\ntype = "fork"', 3, "cannot be a fork"),
    ('[[members]]\nname = "a"\nmodel = "sonet"', 3, "'sonet' is not a known model; did you mean sonnet"),
    ('[[members]]\nname = "a"\n[[members]]\nname = "A"', 4, "name 'A' is taken: another member is called a"),
    ('[[members]]\nname = "Main"', 2, "name 'Main' is taken: it is the lead's"),
    ('[[members]]\nname = "user"', 2, "name 'user' is taken: it is the human's"),
    ('[[members]]\nname = "root"', 2, "name 'root' is taken: it is the session's own"),
    ('[[members]]\nname = "dead"', 2, "name 'dead' is not valid: bridge, dead, held, outgoing are reserved"),
    ('[[members]]\nname = "a/b"', 2, "name 'a/b' is not valid: a name has letters a-z, digits, - and _"),
    ('[[members]]\nname = "../x"', 2, "is not valid"),
    (f'[[members]]\nname = "{"x" * 65}"', 2, "it has 65 characters, over 64"),
    ('[[members]]\nname = ""', 2, "name is ''; it should be a text in quotes"),
    ('\n[[members]]\ntype = "explore"', 2, 'name is missing: add a line such as `name = "scout"`'),
    ('[[members]]\nname = "a"\nbudget_usd = 0', 3, "budget_usd is 0; it should be a number above 0"),
    ('[[members]]\nname = "a"\nbudget_usd = nan', 3, "budget_usd is NaN; it should be"),
    ('[[members]]\nname = "a"\nbudget_usd = "2"', 3, "budget_usd is '2'; it should be"),
    ('[[members]]\nname = "a"\nmemory = "team"', 3, "it should be one of user, project, local"),
    ('[[members]]\nname = "a"\nworktree = "yes"', 3, "worktree is 'yes'; it should be true or false"),
    ('[[members]]\nname = "a"\nplan_required = "boss"', 3, "plan_required is 'boss'; it should be true,"),
    ('[[members]]\nname = "a"\nplan_required = { paths = [] }', 3, "a rule needs file patterns"),
    ('[[members]]\nname = "a"\n[members.plan_required]\npaths = "x"', 4, "paths is 'x'; it should be a list"),
    ('[[members]]\nname = "a"\n[members.plan_required]\npaths = ["x"]\nby = "me"', 5, "unknown key 'by'"),
    ('coordinator = true\n[lead]\nagent = "worker"', 3, "remove either"),
    ('lead = "opus"', 1, "lead is 'opus'; it should be a table"),
    ('[members]\nname = "a"', 1, "it should be a list of tables, each after a line [[members]]"),
    ('members = ["a"]', 1, "members.0 is 'a'; it should be a table"),
    ('[[tasks]]\nsubject = "s"', 1, 'id is missing: add a line such as `id = "find"`'),
    ('[[tasks]]\nid = "a"\nsubject = "s"\n[[tasks]]\nid = "a"\nsubject = "t"', 5, "another task has the id 'a'"),
    ('[[tasks]]\nid = "a"\nsubject = "s"\nowner = "scuot"', 4, "unknown member 'scuot'; there is main"),
    ('[[tasks]]\nid = "a"\nsubject = "s"\nblocked_by = ["b"]', 4, "unknown task 'b'; there is none"),
    (f'[[tasks]]\nid = "a"\nsubject = "{"s" * 301}"', 3, "subject has 301 characters; at most 300"),
    (f'[[tasks]]\nid = "a"\nsubject = "s"\ndescription = "{"d" * 65_437}"', 4, "at most 65,436"),
    ("", 1, "the file has no team; begin with [[members]]"),
    ("members:\n  - name: a\n", 1, "not TOML: expected"),
    (b'name = "x"\n\xff\xfe', 2, "not UTF-8: byte 0xff here; save the file as UTF-8"),
    (f"a = {'[' * 5_000}", 1, "not a team: it is nested too deeply"),
    (b"#" * (MAX_BYTES + 1), 1, f"{MAX_BYTES + 1:,} bytes, the limit is {MAX_BYTES:,}"),
]


@pytest.fixture(autouse=True)
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with an agent type of its own, and a home directory without settings."""
    assert not home.exists()
    monkeypatch.delenv("COTERIE_PROJECT_DIR", raising=False)
    here = tmp_path / "project"
    (here / ".git").mkdir(parents=True)
    kinds = here / ".coterie" / "agents"
    kinds.mkdir(parents=True)
    (kinds / "reviewer.md").write_text("---\nname: reviewer\ndescription: d\n---\nGo.\n")
    return here


def read(project: Path, text: str | bytes) -> TeamDefinition:
    path = project / "team.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_team(path, project)


def problems_of(project: Path, text: str | bytes) -> list[tuple[int, str]]:
    with pytest.raises(TeamInvalid) as caught:
        read(project, text)
    assert {flaw.path for flaw in caught.value.flaws} == {project / "team.toml"}
    return [(flaw.line, flaw.reason) for flaw in caught.value.flaws]


def test_values_are_normalized_and_tasks_sorted_after_their_blockers(project: Path) -> None:
    text = """
[[members]]
name = "tester"
prompt = " Test it. "
plan_required = { paths = ["tests/**", "a.py"] }
process = "shared"
[[members]]
name = "writer"
type = "reviewer"
plan_required = true
budget_usd = 0.1
[[tasks]]
id = "last"
subject = "Prove   it"
owner = "main"
blocked_by = ["first", "first"]
[[tasks]]
id = "first"
subject = "Find it"
"""
    rule = PlanPolicy(by="rule", paths=("tests/**", "a.py"))
    members = (
        TeamMember(name="tester", type="general-purpose", prompt="Test it.", plan=rule, process="shared"),
        TeamMember(name="writer", type="reviewer", plan=PlanPolicy(), budget_usd=Decimal("0.1")),
    )
    first = TeamTask(key="first", subject="Find it")
    last = TeamTask(key="last", subject="Prove it", owner="main", blocked_by=("first",))
    assert read(project, text) == TeamDefinition(name="team", members=members, tasks=(first, last))


def test_default_name_is_that_of_the_file_and_a_byte_order_mark_is_accepted(project: Path) -> None:
    assert read(project, "coordinator = true") == TeamDefinition(name="team", coordinator=True)
    assert read(project, b'\xef\xbb\xbfname = "x"').name == "x"
    assert problems_of(project, b'\xef\xbb\xbfname = "x"\n# \xff') == [
        (2, "not UTF-8: byte 0xff here; save the file as UTF-8")
    ]


@pytest.mark.parametrize(("text", "line", "reason"), FLAWS, ids=[reason for _, _, reason in FLAWS])
def test_problem_has_its_line_and_the_expected_value(project: Path, text: str | bytes, line: int, reason: str) -> None:
    found = problems_of(project, text)
    assert [where for where, why in found if reason in why] == [line], found


def test_each_cycle_of_tasks_is_reported(project: Path) -> None:
    """Two disjoint cycles are two problems; a task that only waits for a cycle is valid."""
    pairs = {"a": "b", "b": "a", "c": "d", "d": "c", "e": "a"}
    text = "".join(
        f'[[tasks]]\nid = "{key}"\nsubject = "s"\nblocked_by = ["{other}"]\n' for key, other in pairs.items()
    )
    assert [(line, why.split(": ")[1]) for line, why in problems_of(project, text)] == [
        (4, "a -> b -> a; remove one dependency"),
        (12, "c -> d -> c; remove one dependency"),
    ]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda _: None], ids=["directory", "pipe", "nothing"])
def test_non_file_is_not_opened(project: Path, make: object) -> None:
    path = project / "no.toml"
    assert callable(make)
    make(path)
    with pytest.raises(TeamInvalid) as caught:
        load_team(path, project)
    assert str(caught.value).startswith((f"{path}:1: not a regular file", f"{path}:1: cannot be read"))


def test_worktree_needs_a_repository(tmp_path: Path, project: Path) -> None:
    text = '[[members]]\nname = "a"\nworktree = true'
    assert read(project, text).members[0].worktree
    outside = tmp_path / "outside"
    outside.mkdir()
    assert problems_of(outside, text) == [
        (3, f"a worktree needs a git repository, and {outside} is not in one: run `git init`, or remove the key")
    ]


def test_team_above_the_concurrency_limit_is_refused(project: Path) -> None:
    (project / ".coterie" / "settings.toml").write_text("[agents]\nat_once = 3\n")
    text = "".join(f'[[members]]\nname = "m{number}"\n' for number in range(3))
    [(line, reason)] = problems_of(project, text)
    assert line == 5, "where the first stands who finds no room"
    assert "the lead and 3 members exceed the number of agents that may run at a time: agents.at_once is 3" in reason
    assert len(read(project, text[: text.rindex("[[")]).members) == 2


def keys_of(heading: str) -> set[str]:
    """Return the keys in the table whose first heading is *heading*."""
    table = PAGE.split(f"| {heading} | default | meaning |\n|---|---|---|\n")[1].split("\n\n")[0]
    return {key for row in table.splitlines() for key in re.findall(r"`([a-z_.]+)`", row.split(" | ")[0])}


def test_documented_keys_are_exactly_the_known_keys() -> None:
    lead = {f"lead.{key}" for key in LEAD_KEYS}
    assert keys_of("key") == (TEAM_KEYS.keys() - {"lead", "members", "tasks"}) | lead
    assert keys_of("key of `[[members]]`") == MEMBER_KEYS.keys()
    assert keys_of("key of `[[tasks]]`") == TASK_KEYS.keys()


def test_documentation_example_is_part_of_the_example_file(tmp_path: Path) -> None:
    [text] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "team.toml").write_text(text)
    shown, whole = load_team(tmp_path / "team.toml", tmp_path), load_team(DOCS / "examples" / "team.toml", tmp_path)
    assert (shown.name, shown.lead, shown.members[:2]) == (whole.name, whole.lead, whole.members[:2])


def test_documented_problems_match_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("team.toml").write_text(DOCUMENTED_FLAWS)
    with pytest.raises(TeamInvalid) as caught:
        load_team(Path("team.toml"), tmp_path)
    assert f"$ coterie team check team.toml\n{caught.value}\n4 flaws\n" in PAGE
