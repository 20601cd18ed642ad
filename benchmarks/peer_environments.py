"""Environments of the compared frameworks, each created once and kept."""

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import trio

INSTALL_WITHIN = 900.0
DRIVER = Path(__file__).with_name("peer_driver.py")


@attrs.frozen(kw_only=True)
class Framework:
    """One framework."""

    name: str
    packages: Sequence[str]
    """Requirements for pip; the first is the framework itself."""
    caches: bool
    """True if it has options for the prompt cache."""


FRAMEWORKS: Mapping[str, Framework] = {
    each.name: each
    for each in (
        Framework(name="pydantic-ai", packages=("pydantic-ai-slim[anthropic]",), caches=True),
        Framework(name="langgraph", packages=("langgraph", "langchain", "langchain-anthropic"), caches=True),
        # Its client imports tiktoken without requiring it, and passes arguments that later versions of the SDK reject.
        Framework(
            name="autogen",
            packages=("autogen-agentchat", "autogen-ext[anthropic]", "tiktoken", "anthropic<1"),
            caches=False,
        ),
    )
}


@attrs.define(eq=False)
class NotMeasured(Exception):
    """A framework cannot be installed or fails; the others are still measured."""

    framework: str
    reason: str

    def __str__(self) -> str:
        return f"{self.framework}: not measured: {self.reason}"


@attrs.frozen(kw_only=True)
class Environment:
    """An installed framework."""

    framework: Framework
    directory: Path
    version: str

    async def run(self, order: Mapping[str, object]) -> dict[str, object]:
        """Run *order* in a separate process and return its resource use. Raises `NotMeasured`."""
        whole = {"framework": self.framework.name, **order}
        done = await trio.run_process(
            [str(self.directory / "bin/python"), "-P", str(DRIVER), json.dumps(whole)],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        if done.returncode:
            raise NotMeasured(self.framework.name, _last_line(done.stderr))
        used: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return used


async def installed(framework: Framework) -> Environment:
    """Return the environment of *framework*, created if missing; progress goes to standard error.

    Raises `NotMeasured`.
    """
    wanted = json.dumps([sys.version_info[:2], *framework.packages])
    name = f"{framework.name}-{hashlib.blake2b(wanted.encode(), digest_size=4).hexdigest()}"
    directory = _cache() / name
    if not (directory / ".ready").exists():
        await _install(framework, directory)
    code = f"from importlib.metadata import version; print(version({framework.packages[0].partition('[')[0]!r}))"
    said = await _ask(framework, [str(directory / "bin/python"), "-c", code])
    return Environment(framework=framework, directory=directory, version=said.decode().strip())


async def _install(framework: Framework, directory: Path) -> None:
    began = time.monotonic()
    print(f"installing {' '.join(framework.packages)} into {directory} ...", file=sys.stderr, flush=True)
    with trio.move_on_after(INSTALL_WITHIN) as scope:
        await _ask(framework, [sys.executable, "-m", "venv", "--clear", str(directory)])
        options = ("--quiet", "--disable-pip-version-check", "--no-input")
        await _ask(framework, [str(directory / "bin/python"), "-m", "pip", "install", *options, *framework.packages])
        (directory / ".ready").touch()
    if scope.cancelled_caught:
        raise NotMeasured(framework.name, f"it was not installed after {INSTALL_WITHIN:g} s")
    print(f"... done after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


async def _ask(framework: Framework, command: Sequence[str]) -> bytes:
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    if done.returncode:
        raise NotMeasured(framework.name, _last_line(done.stderr))
    return done.stdout


def _last_line(said: bytes | None) -> str:
    lines = [line for line in (said or b"").decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "it ended without a word"


def _cache() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "coterie" / "peers"
