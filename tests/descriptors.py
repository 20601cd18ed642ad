"""Count of the open descriptors of this process."""

import gc
import os


def count_descriptors() -> int:
    """Those that somebody still holds; what earlier tests left to the garbage collector is closed first."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, no paths
