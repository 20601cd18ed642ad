"""The table of steps: order per hook, roles, settings, and that nothing else puts a step into an agent."""

import ast
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest

from coterie.agents.loop.agent import Pipeline
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.pipeline import (
    DREAMING,
    EXTRACTION,
    PROGRESS,
    STEPS,
    Hook,
    Steps,
    arrange,
    disabled_settings,
)
from coterie.agents.settings import SETTINGS, Settings

ROOT = Path(__file__).parents[3]
PRODUCT = ("agents", "orchestrator", "mailbox", "memory", "scenarios", "src/coterie")


ORDER: dict[str, tuple[str, ...]] = {
    "tool_results": ("tool_results",),
    "new_message": ("hook_messages", "messaging", "job_notices", "clear_by_cache", "recall"),
    "before_call": (
        *("on_demand_compaction", "recall", "hook_messages", "messaging", "clear_by_time", "clear_by_api"),
        *("compaction", "window_check", "keepalive"),
    ),
    "overflow": ("media_clearing", "compaction"),
    "reply": ("clear_by_api", "break_detection", "keepalive", "session_notes", "progress"),
    "stop": ("stop_hook",),
    "end": ("extraction", "dreaming"),
    "compacted": ("session_notes", "recall", "compaction_hook"),
}
"""Blocks of the conversation follow this order, so a change of it invalidates cached prompts."""


def named_steps() -> Steps:
    names: dict[str, Any] = {field.name: field.name for field in attrs.fields(Steps)}
    return Steps(**names)


def by_hook(pipeline: Pipeline) -> dict[str, tuple[Any, ...]]:
    return {hook: getattr(pipeline, hook) for hook in get_args(Hook)}


def test_agent_runs_all_steps_in_the_order_of_the_table() -> None:
    assert by_hook(arrange(named_steps())) == ORDER


def test_fork_checks_sharing_first_and_never_edits_the_cache() -> None:
    without_edits = tuple(step for step in ORDER["new_message"] if step != "clear_by_cache")
    expected = ORDER | {"new_message": without_edits, "reply": ("fork_sharing", *ORDER["reply"])}
    assert by_hook(arrange(named_steps(), role="fork")) == expected


@pytest.mark.parametrize("setting", sorted({row.setting for row in STEPS if row.setting is not None}))
def test_disabled_setting_removes_its_steps_and_no_others(setting: str) -> None:
    """The two mechanisms that need request parameters are off in a conversation that began without them."""
    assert setting in disabled_settings(Settings.build({setting: False}, {}), KeyHeader(model="m"), is_embedded=False)
    left = by_hook(arrange(named_steps(), {setting}))
    off = {(row.hook, row.step) for row in STEPS if row.setting == setting}
    assert left == {hook: tuple(step for step in steps if (hook, step) not in off) for hook, steps in ORDER.items()}


def test_daily_log_and_scripted_models_switch_off_extraction() -> None:
    daily = Settings.build({"memory.daily_log": True, EXTRACTION: True}, {})
    header = KeyHeader(model="m")
    assert EXTRACTION in disabled_settings(daily, header, is_embedded=False)
    assert {EXTRACTION, DREAMING, PROGRESS} <= disabled_settings(Settings(), header, is_embedded=True)
    assert not {EXTRACTION, DREAMING, PROGRESS} & disabled_settings(Settings(), header, is_embedded=False)


def test_every_layer_and_every_switch_of_a_layer_has_a_row() -> None:
    assert {row.layer for row in STEPS} == {None, 1, 2, 3, 4, 5, 6, 7}
    switches = {key for key in SETTINGS if key.startswith("layers.") and key.endswith(".enabled")}
    assert switches <= {row.setting for row in STEPS}


def _puts_steps_into_an_agent(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(target, ast.Attribute) and target.attr == "pipeline" for target in targets)
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    is_changed = name in ("evolve", "replace") and bool(node.args) and "pipeline" in ast.unparse(node.args[0])
    return is_changed or (name == "Pipeline" and bool(node.args or node.keywords))


def test_only_the_table_puts_steps_into_an_agent() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {ast.unparse(node)[:60]}"
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents)
        for node in ast.walk(ast.parse(path.read_text()))
        if _puts_steps_into_an_agent(node)
    }
    assert found == {
        "agents/loop/agent.py: self.pipeline = self.build_pipeline(self)",
        "agents/loop/pipeline.py: Pipeline(**chosen)",
    }
