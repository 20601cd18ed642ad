"""Prompts for models, each in a Markdown file, and the function that replaces their `$slots` (named gaps) by text."""

import string
from pathlib import Path

PROMPTS = Path(__file__).parent


def render(name: str, /, **facts: str) -> str:
    """Read the prompt in `prompts/<name>.md` and replace each `$slot` by the keyword argument of the same name.

    Raises `ValueError` if a slot has no argument, or an argument has no slot, because both are bugs of the caller.
    """
    template = string.Template((PROMPTS / f"{name}.md").read_text(encoding="utf-8"))
    slots = set(template.get_identifiers())
    if missing := sorted(slots - facts.keys()):
        raise ValueError(f"prompt {name}.md has slots without a value: {', '.join(missing)}; pass a value for each")
    if unused := sorted(facts.keys() - slots):
        raise ValueError(f"prompt {name}.md has no slot for {', '.join(unused)}; omit these values or add the slots")
    return template.substitute(facts).strip()
