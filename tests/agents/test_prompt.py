from pathlib import Path

import pytest

from coterie.agents.prompt import PROMPTS, render

FACTS = {
    "compacted": {"origin": "This is a summary of it.", "summary": "All went well."},
    "compacted_files": {"files": "<file>"},
    "compacted_standing": {"sections": "## The team"},
    "compacted_words": {"messages": "<user-message>"},
    "compaction": {"scope": "Summarise the whole conversation."},
    "compaction_part": {"earlier": "Nothing.", "part": "It began."},
    "context": {"directory": "/project", "platform": "Linux", "date": "2026-11-16"},
    "fork_worktree": {"directory": "/tree", "origin": "/project"},
    "instructions": {"files": "Be kind."},
    "notes": {"path": "/agent/notes.md", "notes": "# Worklog", "section": "2,000", "total": "12,000"},
    "tools/agent": {"kinds": "- explore: looks around"},
}
NAMES = sorted(str(path.relative_to(PROMPTS).with_suffix("")) for path in PROMPTS.rglob("*.md"))


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_renders_with_the_facts_it_is_given(name: str) -> None:
    text = render(name, **FACTS.get(name, {}))
    assert text
    assert "$" not in text


def test_a_context_says_where_and_when() -> None:
    assert render("context", **FACTS["context"]).splitlines() == [
        "<context>",
        "Project directory: /project",
        "Platform: Linux",
        "Date: 2026-11-16",
        "</context>",
    ]


def test_a_missing_fact_is_refused() -> None:
    with pytest.raises(ValueError, match="needs date, platform"):
        render("context", directory="/")


def test_an_unused_fact_is_refused() -> None:
    with pytest.raises(ValueError, match="no use for weather"):
        render("agent", weather="fine")


def test_prompts_are_files_beside_the_code() -> None:
    assert Path(PROMPTS, "agent.md").is_file()
