"""docs/teams.md matches the code: keys, example and problems."""

import re
import tomllib
from pathlib import Path

import pytest

from coterie.orchestrator.teams.team_file import LEAD_KEYS, MEMBER_KEYS, TASK_KEYS, TEAM_KEYS, load_team
from coterie.orchestrator.teams.team_tables import TeamInvalid

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "teams.md").read_text()
FLAWED = """# The flaws of the page.
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


pytestmark = pytest.mark.usefixtures("home")


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
    assert [member.name for member in whole.members] == ["scout", "builder", "tester", "critic"]
    assert [task.key for task in whole.tasks] == ["map", "build", "tests", "verify"]
    example = tomllib.loads((DOCS / "examples" / "team.toml").read_text())
    assert tomllib.loads(text).keys() == example.keys()


def test_documented_problems_match_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("team.toml").write_text(FLAWED)
    with pytest.raises(TeamInvalid) as caught:
        load_team(Path("team.toml"), tmp_path)
    assert f"$ coterie team check team.toml\n{caught.value}\n4 flaws\n" in PAGE
