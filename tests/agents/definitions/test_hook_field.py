"""The field `hooks` of a definition."""

from pathlib import Path

from coterie.agents.definitions.definition_parser import parse_definition
from coterie.agents.hooks.hook import Hook

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


def test_every_problem_has_its_line_and_valid_hooks_stay() -> None:
    definition, problems = parse_definition(FLAWED, path=Path("a.md"), scope="project")
    assert definition is not None
    assert definition.hooks == (Hook(event="Stop", command="good", source="a.md"),)
    assert [problem.line for problem in problems] == [5, 8, 14]
    assert {problem.severity for problem in problems} == {"warning"}
    told = [problem.reason for problem in problems]
    assert "did you mean PreToolUse?" in told[0]
    assert "'(Bash' is not a regular expression" in told[1]
    assert "timeout must be seconds" in told[2]
