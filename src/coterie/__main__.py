"""Entry point of `python -m coterie`, which runs the `coterie` command."""

from coterie.orchestrator.cli.main import main

main()
