"""Number of open descriptors of this process."""

import gc
import os


def count_descriptors() -> int:
    """Count the open descriptors after a garbage collection, which closes those that earlier tests dropped."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, no paths
