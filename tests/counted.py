"""What a test has counted, printed at the end of the run."""

from collections.abc import Callable

Counted = Callable[[str, object], None]
"""The fixture `record_property`: `record_property("counted", line)`."""
