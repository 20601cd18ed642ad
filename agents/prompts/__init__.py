"""Prompts for models, one Markdown file each, and the function that fills their slots."""

import string
from pathlib import Path

PROMPTS = Path(__file__).parent


def render(name: str, /, **facts: str) -> str:
    """Read the prompt `prompts/<name>.md` and replace each `$slot` by a fact.

    Raises `ValueError` for a slot without a fact and for a fact without a slot, because both are bugs.
    """
    template = string.Template((PROMPTS / f"{name}.md").read_text(encoding="utf-8"))
    slots = set(template.get_identifiers())
    if missing := sorted(slots - facts.keys()):
        raise ValueError(f"prompt {name!r} has slots without a value: {', '.join(missing)}; pass the values")
    if unused := sorted(facts.keys() - slots):
        raise ValueError(f"prompt {name!r} has no slot for {', '.join(unused)}; do not pass them")
    return template.substitute(facts).strip()
