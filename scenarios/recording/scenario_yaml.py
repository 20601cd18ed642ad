"""Writes a scenario as readable YAML."""

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

WIDTH = 110
SHORT = 90
"""Maximum length of a mapping that is written on one line."""
_MAP = "tag:yaml.org,2002:map"


class _Dumper(yaml.SafeDumper):
    """YAML dumper for scenarios, which are YAML 1.2."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT002 - overrides PyYAML
        """Indent lists below their key."""
        del indentless
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: object) -> bool:
        """Write repeated values in full instead of as aliases."""
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text.rstrip("\n") or len(text) > WIDTH:
        style = "|"
    elif not text[:1].isalpha() or text.endswith(("\n", ":")):
        # Text in YAML 1.1 may be a number in 1.2.
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _mapping(dumper: yaml.SafeDumper, mapping: dict[str, Any]) -> yaml.MappingNode:
    """Represent a mapping; one with few short values goes on one line."""
    is_short = all(isinstance(value, str | int | float | None) and "\n" not in str(value) for value in mapping.values())
    is_short = is_short and sum(len(f"{key}: {value}, ") for key, value in mapping.items()) < SHORT
    return dumper.represent_mapping(_MAP, mapping.items(), flow_style=is_short)


class _Section(dict[str, Any]):
    """A mapping that is written in block style."""


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    """Represent a list; items with one key are written without braces."""
    spread = [_Section(item) if isinstance(item, dict) and len(item) == 1 else item for item in items]
    return dumper.represent_sequence("tag:yaml.org,2002:seq", spread, flow_style=not items)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(
    _Section, lambda dumper, section: dumper.represent_mapping(_MAP, section.items(), flow_style=False)
)


def scenario_text(fields: Mapping[str, Any], remarks: Iterable[str]) -> str:
    """Serialize *fields* with *remarks* as comments at the top; top-level keys are separate sections."""
    head = "".join(f"# {line}\n" for remark in remarks for line in remark.splitlines())
    sections = (
        yaml.dump(_Section({key: value}), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
        for key, value in fields.items()
    )
    return head + "\n" + "".join(sections)
