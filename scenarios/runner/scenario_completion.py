"""Completion candidates for scenario names, without loading the runner."""

import re
from pathlib import Path

import click
from click.shell_completion import CompletionItem

SCENARIO_FILES = Path(__file__).parents[1] / "stories"
_ABOUT = re.compile(r"^about: *(.+)$", re.MULTILINE)


def complete_scenario(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names with what they are about; what looks like a path is one."""
    if "/" in incomplete or "." in incomplete:
        return [CompletionItem(incomplete, type="file")]
    paths = sorted(path for path in SCENARIO_FILES.glob("*.yaml") if path.stem.startswith(incomplete))
    return [CompletionItem(path.stem, help=_about(path)) for path in paths]


def _about(path: Path) -> str | None:
    found = _ABOUT.search(path.read_text())
    return found[1].strip("\"' ") if found else None
