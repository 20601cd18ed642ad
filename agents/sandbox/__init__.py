"""A wall around the commands of an agent, held by the kernel: what they may write, read and reach."""

from coterie.agents.sandbox.sandbox import Sandbox, Way

__all__ = ["Sandbox", "Way"]
