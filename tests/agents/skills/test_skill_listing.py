from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.conversation.token_estimate import TEXT_BYTES
from coterie.agents.skills.skill_text import skill_listing
from coterie.agents.skills.store import Skill


def skill(name: str, description: str = "Does it.") -> Skill:
    path = Path("/skills", name, "SKILL.md")
    return Skill(name=name, description=description, scope="user", source=path, file=path)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("- ")]


def test_a_skill_is_a_line_with_the_beginning_of_its_description() -> None:
    assert skill_listing([], 2_000) == ""
    told = lines(skill_listing([skill("a"), skill("b", "x" * 1_000)], 2_000))
    assert told == ["- a: Does it.", f"- b: {'x' * 247}..."]


def test_descriptions_are_shortened_before_a_skill_is_omitted() -> None:
    many = [skill(f"skill-{number:03}", "words " * 40) for number in range(300)]
    told = lines(skill_listing(many[:100], 2_000))
    assert [line.endswith("...") for line in told] == [True] * 100
    told = lines(skill_listing(many, 500))
    assert told[0] == "- skill-000"
    assert told[-1].startswith(f"- ... and {300 - len(told) + 1} more")


@given(st.lists(st.text(max_size=300), max_size=60), st.integers(200, 3_000))
def test_a_listing_keeps_its_budget_and_its_frame(descriptions: list[str], budget: int) -> None:
    found = [skill(f"s{number}", " ".join(text.split())) for number, text in enumerate(descriptions)]
    text = skill_listing(found, budget)
    assert len(text.encode()) <= budget * TEXT_BYTES + 100
    assert text.count("</skills>") == bool(found)
    assert text == skill_listing(found, budget)
