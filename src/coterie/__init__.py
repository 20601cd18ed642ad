"""Coterie runs a team of Claude agents as operating-system processes.

Importing this package loads no submodule, so that the import is fast: the module of a public name is loaded when the
name is first used. `docs/python.md` lists all public names.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from warnings import warn

if TYPE_CHECKING:
    from coterie.orchestrator.api.public import *  # noqa: F403 - its __all__ is the list of public names

__version__ = "0.1.0"

_PUBLIC = "coterie.orchestrator.api.public"
_RENAMED = {
    "AgentGlance": "AgentSummary",
    "ForSession": "AllowForSession",
    "Observed": "SessionEvent",
    "Once": "AllowOnce",
    "Progress": "ProgressSummarized",
    "Refusal": "DenyCall",
    "Result": "SessionResult",
    "Started": "RunStarted",
    "Text": "TextEmitted",
}
"""Maps an old public name to its new name. An old name still works, with a `DeprecationWarning`."""

if not TYPE_CHECKING:  # otherwise mypy would give every name the type Any

    def __getattr__(name: str) -> Any:
        # `from coterie import clock` asks for a module first, and tools such as inspect ask for names like __wrapped__.
        if name.startswith("__") or find_spec(f"{__name__}.{name}") is not None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _RENAMED:
            new = _RENAMED[name]
            warn(f"{__name__}.{name} is now {__name__}.{new}", DeprecationWarning, stacklevel=2)
            name = new
        public = import_module(_PUBLIC)
        if name not in public.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; dir({__name__}) lists all names")
        return getattr(public, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *import_module(_PUBLIC).__all__])
