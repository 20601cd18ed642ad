"""Prompt files, and the function that fills their slots."""

import string
from pathlib import Path

PROMPTS = Path(__file__).parent


def render(name: str, /, **facts: str) -> str:
    """The prompt `prompts/<name>.md` with each `$slot` filled.

    Raises `ValueError` for a slot without a fact and for a fact without a slot: both are mistakes of ours.
    """
    template = string.Template((PROMPTS / f"{name}.md").read_text(encoding="utf-8"))
    slots = set(template.get_identifiers())
    if missing := sorted(slots - facts.keys()):
        raise ValueError(f"prompt {name!r} needs {', '.join(missing)}")
    if unused := sorted(facts.keys() - slots):
        raise ValueError(f"prompt {name!r} has no use for {', '.join(unused)}")
    return template.substitute(facts).strip()
