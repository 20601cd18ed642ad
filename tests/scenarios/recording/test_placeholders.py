import re
from pathlib import Path

import pytest

from coterie.scenarios.recording.placeholders import Placeholders

SESSION = Path("/home/ada/.coterie/projects/-home-ada-shop/sessions/20261117-141432-ccf95c")
REQUEST = "01a1e9dc-13b6-75e2-8449-f668516e81c2"
OTHER = "01a1e9dc-13b6-7204-a0cb-15365df0f3d0"


def placeholders() -> Placeholders:
    return Placeholders(project=Path("/home/ada/shop"), session=SESSION, home=Path("/home/ada"))


@pytest.mark.parametrize(
    ("text", "masked", "strange"),
    [
        ("cd /home/ada/shop && cat /home/ada/shop/src/a.py /home/ada/shop/*.md", "cd . && cat src/a.py ./*.md", []),
        ("/home/ada/shopping/b", "~/shopping/b", ["~/shopping/b"]),
        ("/usr/bin/env python /srv/out.txt", "/usr/bin/env python /srv/out.txt", ["/srv/out.txt"]),
        pytest.param(REQUEST, REQUEST, [REQUEST], id="an id the agent never received"),
    ],
)
def test_paths_become_relative_or_get_a_remark(text: str, masked: str, strange: list[str]) -> None:
    found = placeholders()
    assert found.mask_text(text, ["nothing"]) == masked
    assert list(found.strange) == strange


def test_paths_below_an_agents_own_worktree_become_relative_too() -> None:
    found = placeholders()
    assert found.mask_text("/srv/trees/mender/src/a.py", (), Path("/srv/trees/mender")) == "src/a.py"
    assert not found.strange


def test_scratch_directory_becomes_a_slot() -> None:
    inputs = [f"share a scratch directory: {SESSION}/scratch\nNotes belong there."]
    found = placeholders()
    assert found.mask_text(f"{SESSION}/scratch/a.md", inputs) == "{{/scratch directory: (.+)/}}/a.md"
    assert not found.strange
    assert "home/ada" not in found.mask_text(f"{SESSION}/scratch/a.md")
    assert list(found.strange) == ["~session/scratch/a.md"]


def test_id_becomes_a_slot_that_finds_only_this_id() -> None:
    inputs = [f'<message from="a" id="{OTHER}">plan</message>', f'<message from="b" id="{REQUEST}">plan</message>']
    found = placeholders()
    slot = found.mask_text(OTHER, inputs)
    expression = slot.removeprefix("{{/").removesuffix("/}}")
    assert re.findall(expression, inputs[0]) == [OTHER]
    assert not re.findall(expression, inputs[1])
    assert re.findall(found.mask_text(REQUEST, inputs)[3:-3], inputs[1]) == [REQUEST]
    assert not found.strange


def test_braces_of_a_text_are_no_slot() -> None:
    assert placeholders().mask_value({"content": ["{{name}}", 3, None]}) == {"content": ["{{open}}name}}", 3, None]}
