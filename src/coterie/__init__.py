"""Coterie runs a team of Claude agents as operating-system processes.

Importing this package imports nothing else; what it offers is loaded when it is first used.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_OFFERED: dict[str, str] = {}
"""Public name -> module that defines it."""


def __getattr__(name: str) -> Any:
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_OFFERED[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_OFFERED])
