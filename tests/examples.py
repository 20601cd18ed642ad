"""Number of examples of a property: few and the same in `make test`, ten times as many new ones in `make soak`."""

import os
from typing import Any

from hypothesis import settings

EXPLORING = os.environ.get("HYPOTHESIS_PROFILE") == "exploring"
"""True if every run searches for new examples."""
DEFAULT = 40
"""Number of examples of a property that names none."""


def examples(count: int, **options: Any) -> settings:
    return settings(max_examples=count * (10 if EXPLORING else 1), **{"deadline": None, **options})
