"""Type of the `record_property` fixture for figures that are printed at the end of the run."""

from collections.abc import Callable

RecordProperty = Callable[[str, object], None]
"""The fixture `record_property`: `record_property("counted", line)`."""
