"""Program of a child of the exec starter."""

import sys

from coterie.orchestrator.processes.child_main import run_child
from coterie.orchestrator.processes.fork_handshake import PassedDescriptors

if __name__ == "__main__":
    root, *descriptors = map(int, sys.argv[1:])
    run_child(root, PassedDescriptors.of(descriptors))
