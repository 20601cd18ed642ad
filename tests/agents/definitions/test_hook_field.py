"""The field `hooks` of a definition."""

from pathlib import Path

from coterie.agents.definitions.definition_parser import parse_definition
from coterie.agents.hooks.hook import Hook

GOOD = """---
name: reviewer
description: Reviews.
hooks:
  PreToolUse:
    - matcher: "Bash|Edit"
      hooks:
        - type: command
          command: ./check.sh
          timeout: 5
  Stop:
    - command: echo done
---
You review.
"""
FLAWED = """---
name: reviewer
description: Reviews.
hooks:
  PreToolUze:
    - hooks: []
  PreToolUse:
    - matcher: "(Bash"
      hooks: [{type: command, command: x}]
  Stop:
    - hooks:
        - type: command
          command: good
          timeout: soon
---
You review.
"""


def test_hook_field_has_the_structure_of_settings() -> None:
    definition, problems = parse_definition(GOOD, path=Path("a.md"), scope="project")
    assert problems == []
    assert definition is not None
    assert definition.hooks == (
        Hook(event="PreToolUse", matcher="Bash|Edit", command="./check.sh", timeout=5.0, source="a.md"),
        Hook(event="Stop", command="echo done", source="a.md"),
    )


def test_every_problem_has_its_line_and_valid_hooks_stay() -> None:
    definition, problems = parse_definition(FLAWED, path=Path("a.md"), scope="project")
    assert definition is not None
    assert [hook.command for hook in definition.hooks] == ["good"]
    assert [(problem.line, problem.severity) for problem in problems] == [
        (5, "warning"),
        (8, "warning"),
        (14, "warning"),
    ]
    told = [problem.reason for problem in problems]
    assert "did you mean PreToolUse?" in told[0]
    assert "'(Bash' is not a regular expression" in told[1]
    assert "timeout must be seconds" in told[2]
