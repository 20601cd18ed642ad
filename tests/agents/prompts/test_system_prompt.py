from pathlib import Path

import pytest

from coterie.agents.prompts import PROMPTS, render

FACTS = {
    "compacted": {"origin": "The text below is a summary of it.", "summary": "All went well."},
    "compacted_files": {"files": "<file>"},
    "compacted_skills": {"skills": "<skill>"},
    "compacted_standing": {"sections": "## The team"},
    "compacted_words": {"messages": "<user-message>"},
    "compaction": {"scope": "Summarise the whole conversation."},
    "compaction_part": {"earlier": "Nothing.", "part": "It began."},
    "context": {"directory": "/project", "platform": "Linux", "date": "2026-11-16"},
    "dream": {
        "bytes": "25,000",
        "date": "2026-11-16",
        "directory": "/copy",
        "evidence": "/evidence.md",
        "lines": "200",
        "transcripts": "- /sessions",
        "turns": "30",
    },
    "extraction": {
        "count": "2",
        "directory": "/memory",
        "manifest": "(none yet)",
        "date": "2026-11-16",
        "turns": "5",
    },
    "fork_worktree": {"directory": "/tree", "origin": "/project"},
    "instructions": {"files": "Be kind."},
    "mcp": {"words": "## time"},
    "memory": {"directory": "/memory"},
    "memory_agent": {"kind": "reviewer", "directory": "/memory", "hint": "It is yours."},
    "memory_guidelines": {"guidelines": "Keep it short."},
    "memory_index": {"indexes": "<memory>"},
    "memory_log": {"directory": "/memory"},
    "memory_search": {"directory": "/memory", "sessions": "/sessions"},
    "notes": {"path": "/agent/notes.md", "notes": "# Worklog", "section": "2,000", "total": "12,000"},
    "plan_request": {"agent": "builder", "files": "a.py", "id": "plan-1", "plan": "1. Look."},
    "plan_required": {"approver": "the lead"},
    "progress_work": {"work": "calls Read(file_path=loop.py)"},
    "recall": {"memories": "<memory>"},
    "recall_choice": {"memories": "- a.md", "most": "5"},
    "recall_query": {"query": "Which port?", "tools": "Bash"},
    "scratch": {"directory": "/session/scratch"},
    "hook_denied": {"reason": "no"},
    "hook_objection": {"event": "Stop", "text": "not yet"},
    "hook_remark": {"event": "PostToolUse", "text": "by the way"},
    "skill": {"name": '"notes"', "directory": '"/skills/notes"', "text": "Write them."},
    "skill_asked": {"name": "notes", "skill": "<skill>"},
    "skills": {"skills": "- notes: Writes notes."},
    "skills_preloaded": {"skills": "<skill>"},
    "still_at_work": {"names": "left, right"},
    "team": {"name": "review", "members": "- scout (kind explore)"},
    "team_tasks": {"tasks": "- 1 [open] Find it"},
    "teammate": {"name": "scout", "lead": "main", "others": "Other members of the team: builder."},
    "tools/Agent": {"kinds": "- explore: looks around"},
}
NAMES = sorted(str(path.relative_to(PROMPTS).with_suffix("")) for path in PROMPTS.rglob("*.md"))


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_renders_with_its_facts(name: str) -> None:
    text = render(name, **FACTS.get(name, {}))
    assert text
    assert "$" not in text


def test_context_prompt_names_directory_platform_and_date() -> None:
    assert render("context", **FACTS["context"]).splitlines() == [
        "<context>",
        "Project directory: /project",
        "Platform: Linux",
        "Date: 2026-11-16",
        "</context>",
    ]


def test_missing_fact_is_refused() -> None:
    with pytest.raises(ValueError, match="without a value: date, platform"):
        render("context", directory="/")


def test_unused_fact_is_refused() -> None:
    with pytest.raises(ValueError, match="no slot for weather"):
        render("agent", weather="fine")


def test_prompts_are_files_beside_the_code() -> None:
    assert Path(PROMPTS, "agent.md").is_file()
