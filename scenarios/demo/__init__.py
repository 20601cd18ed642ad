"""`coterie demo`: the main job, shown on the embedded server, without a key."""

from coterie.scenarios.demo.command import command

__all__ = ["command"]
