import string

import pytest

from coterie.agents.prompts import PROMPTS, render

NAMES = sorted(str(path.relative_to(PROMPTS).with_suffix("")) for path in PROMPTS.rglob("*.md"))


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_is_a_valid_template(name: str) -> None:
    slots = string.Template((PROMPTS / f"{name}.md").read_text()).get_identifiers()
    text = render(name, **dict.fromkeys(slots, "<fact>"))
    assert text
    assert "$" not in text


def test_every_slot_gets_its_fact_and_no_other_is_taken() -> None:
    facts = {"directory": "/project", "platform": "Linux", "date": "2026-11-16"}
    lines = ["Project directory: /project", "Platform: Linux", "Date: 2026-11-16"]
    assert render("context", **facts).splitlines() == ["<context>", *lines, "</context>"]
    with pytest.raises(ValueError, match="without a value: date, platform"):
        render("context", directory="/")
    with pytest.raises(ValueError, match="no slot for weather"):
        render("agent", weather="fine")
