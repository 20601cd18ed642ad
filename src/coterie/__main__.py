"""`python -m coterie` is the `coterie` command."""

from coterie.orchestrator.cli.main import main

main()
