"""First part of the demo: `coterie run` fixes a bug in a scratch repository."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from coterie.agents.hooks.hook_files import CLAUDE_HOME_VARIABLE

SCRIPT = Path(__file__).with_name("fix.yaml")
TASK = "Invoices with a discount are wrong. Find the bug, fix it, and prove that it is fixed."

FILES = {
    "project/shop/__init__.py": "",
    "project/shop/invoice.py": '''\
"""Totals of invoices."""

from dataclasses import dataclass


@dataclass
class Invoice:
    amounts: list[float]
    discount: float = 0
    """Per cent."""

    def total(self) -> float:
        total = sum(self.amounts)
        return total - self.discount
''',
    "project/tests/test_invoice.py": """\
import unittest

from shop.invoice import Invoice


class TestInvoice(unittest.TestCase):
    def test_discount_is_a_share_of_the_total(self) -> None:
        self.assertEqual(Invoice([60, 140], discount=10).total(), 180)


if __name__ == "__main__":
    unittest.main()
""",
    "home/settings.toml": """\
[permissions]
mode = "acceptEdits"
allow = ["Bash(python3 -m unittest:*)"]
""",
}


def run_bugfix_demo(directory: Path, *, as_json: bool) -> dict[str, Any]:
    """Run the agent by `coterie run` below *directory*, which is empty; return its result if *as_json*.

    Raises `RuntimeError` if the bug is not fixed.
    """
    done = run_bugfix(directory, "json" if as_json else "text", stdout=subprocess.PIPE if as_json else None)
    fixed = (directory / "project/shop/invoice.py").read_text()
    if done.returncode or "/ 100" not in fixed:
        raise RuntimeError(f"the agent did not fix the bug (exit code {done.returncode})")
    summary: dict[str, Any] = json.loads(done.stdout) if as_json else {}
    return summary


def run_bugfix(root: Path, output_format: str, *, stdout: int | None) -> subprocess.CompletedProcess[str]:
    """Create the repository below *root*, an empty directory, and run `coterie run` in it."""
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command = [sys.executable, "-P", "-m", "coterie", "run", TASK, "--script", str(SCRIPT)]
    return subprocess.run(  # noqa: S603 - our own program
        [*command, "--output-format", output_format],
        cwd=root / "project",
        env={**os.environ, "COTERIE_HOME": str(root / "home"), CLAUDE_HOME_VARIABLE: str(root / "claude")},
        stdout=stdout,
        text=True,
        check=False,
    )
