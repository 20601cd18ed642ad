"""What all commands of `coterie memory` begin with: which memories, options, errors in one line."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import get_args

import click
import msgspec

from coterie.agents.definitions import load_definitions
from coterie.agents.errors import ConfigInvalid
from coterie.agents.home import home
from coterie.agents.project import project_directory
from coterie.clock import Clock
from coterie.memory.errors import MemoryRefused, StoreError
from coterie.memory.store.places import AgentScope, MemoryPlace, Scope, agent_place
from coterie.memory.store.store import Store
from coterie.orchestrator.cli.completion import complete_agent
from coterie.orchestrator.cli.exit_codes import Refused
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.remembering import project_memory
from coterie.orchestrator.settings import load_settings

json_option = click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/memory.md.")
_OPTIONS = (
    click.option(
        "--scope",
        type=click.Choice(get_args(Scope)),
        help="Whose memories: auto are those of this project, the default; the others are an agent's, see --agent.",
    ),
    click.option(
        "--agent", "kind", metavar="TYPE", shell_complete=complete_agent, help="The kind of agent they belong to."
    ),
    click.option(
        "--dir",
        "directory",
        metavar="D",
        type=click.Path(path_type=Path),
        help="A directory of memories, wherever it is.",
    ),
)


def place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give *command* the options `--scope`, `--agent` and `--dir`; it gets what they mean as *place*."""

    @wraps(command)
    def with_place(*, scope: Scope | None, kind: str | None, directory: Path | None, **others: object) -> None:
        command(place=find_place(scope, kind, directory), **others)

    for option in reversed(_OPTIONS):
        with_place = option(with_place)
    return with_place


def find_place(scope: Scope | None, kind: str | None, directory: Path | None) -> MemoryPlace:
    """The memories that a user means. Raises `UsageError` for options that do not go together, `ConfigInvalid`."""
    if directory is not None:
        if scope is not None or kind is not None:
            raise click.UsageError("--dir names the memories already; leave --scope and --agent out")
        return _given(directory)
    if scope in (None, "auto") and kind is None:
        return project_memory(Path.cwd(), load_settings(Path.cwd(), {}, os.environ))
    if kind is None:
        raise click.UsageError(f"--scope {scope} belongs to a kind of agent; say which with --agent TYPE")
    if scope == "auto":
        raise click.UsageError("--scope auto belongs to no kind of agent; leave --agent out, or give another scope")
    return agent_place(kind, scope or _scope_of(kind), home=home(), project=project_directory(Path.cwd()))


@contextmanager
def open_store(place: MemoryPlace) -> Iterator[Store]:
    """The store at *place*.

    Within the block what the user must mend is raised as `Refused`, what the store or the machine refuses as another
    `ClickException`.
    """
    try:
        yield Store.at(place.directory, Clock.from_environment())
    except MemoryRefused as exc:
        raise Refused(printable(str(exc))) from exc
    except StoreError as exc:
        raise click.ClickException(printable(str(exc))) from exc
    except BrokenPipeError:
        raise  # nobody reads standard output any more: that is no failure of the store
    except OSError as exc:
        raise click.ClickException(printable(f"{exc.filename or place.directory}: {exc.strerror}")) from exc


def print_json(value: object) -> None:
    """One line of JSON, at once."""
    click.echo(msgspec.json.encode(value))


def _given(directory: Path) -> MemoryPlace:
    if not directory.is_dir():
        raise ConfigInvalid("--dir", f"{directory} is no directory; give one that holds memories")
    return MemoryPlace(scope="auto", directory=directory.absolute())


def _scope_of(kind: str) -> AgentScope:
    """The scope that the definition of *kind* names. Raises `ConfigInvalid` if there is no such kind, or no scope."""
    definition = load_definitions(Path.cwd()).get(kind)
    if definition.memory is None:
        raise ConfigInvalid("--agent", f"{kind} keeps no memories: its definition has no `memory`; or give --scope")
    return definition.memory
