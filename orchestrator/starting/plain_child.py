"""A child of the plain starter: `python -P -m coterie.orchestrator.starting.plain_child ROOT DESCRIPTOR ...`."""

import sys

from coterie.orchestrator.starting.life import live
from coterie.orchestrator.starting.passage import Passed

if __name__ == "__main__":
    root, *descriptors = map(int, sys.argv[1:])
    live(root, Passed.of(descriptors))
