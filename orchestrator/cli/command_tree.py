"""Cached copy of the `coterie` commands for shell completion: their names, options and help texts without their code.

Importing one command module takes up to half a second, and the shell asks for completions at every Tab. So the copy is
stored in a cache file and read from there until a source file changes. A damaged cache file is written again.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem

from coterie import __version__
from coterie.files import replace_file


def cached_by_files(name: str, find: Callable[[], tuple[Any, Iterable[Path]]]) -> Any:
    """Return the value in the cache file *name*; if it is missing or outdated, call *find* and write the cache file.

    *find* returns a JSON value, and the paths of the files and directories that the value depends on. The cached value
    is outdated when one of these, or Coterie's version, has changed. An unusable cache is no error. Blocks on the disk.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    caches = caches if caches.is_absolute() else Path("~/.cache").expanduser()
    path = caches / "coterie" / "completion" / f"{name}.json"
    try:
        stored = msgspec.json.decode(path.read_bytes())
        if stored["version"] == __version__ and stored["stand"] == _fingerprint(stored["paths"]):
            return stored["value"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no cached value, or an unreadable one: replaced below
    value, found_in = find()
    paths = [str(each) for each in found_in]
    stored = {"version": __version__, "paths": paths, "stand": _fingerprint(paths), "value": value}
    content = msgspec.json.encode(stored, enc_hook=str)
    try:
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        replace_file(path, content, durable=False, mode=0o600)
    except OSError:
        pass  # without a writable cache directory the value is found again each time
    return value


def _fingerprint(paths: Iterable[str]) -> str:
    """Return a digest over mtime, size and inode of the files and directories *paths*; it differs after a change."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        try:
            status = Path(path).stat()
            digest.update(f"{path} {status.st_mtime_ns} {status.st_size} {status.st_ino}\n".encode())
        except OSError:
            digest.update(f"{path} -\n".encode())
    return digest.hexdigest()


ROOT = Path(__file__).parents[2]
"""Directory that contains the source folders of Coterie, such as `orchestrator`."""
_PATHS = ("exists", "file_okay", "dir_okay", "allow_dash")
CommandFacts = Mapping[str, Any]


def load_command_tree(program: click.Group) -> click.Group:
    """Return a copy of the commands of *program* that can be completed but not run; cached until the code changes."""
    # One cache for each installation, because the cached functions are named by their modules.
    here = hashlib.blake2b(os.fsencode(ROOT), digest_size=8).hexdigest()
    tree = _command(program.name or "", cached_by_files(f"commands-{here}", lambda: (_facts(program), _sources())))
    assert isinstance(tree, click.Group)
    return tree


def _sources() -> list[Path]:
    """Return all source files and directories in which commands are defined; a change in them outdates the cache."""
    folders = ("orchestrator/cli", "scenarios")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    return sorted({*files, *(file.parent for file in files)})


def _facts(command: click.Command) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "help": command.get_short_help_str(limit=100),
        "is_hidden": command.hidden,
        "help_options": list(command.context_settings.get("help_option_names", ())),
        "parameters": [{**each.to_info_dict(), "completer": _completer_name(each)} for each in command.params],
    }
    if isinstance(command, click.Group):
        context = click.Context(command)
        found = ((name, command.get_command(context, name)) for name in command.list_commands(context))
        facts["commands"] = {name: _facts(each) for name, each in found if each is not None}
    return facts


def _completer_name(parameter: click.Parameter) -> str | None:
    # Click has no public attribute for the completion function of a parameter.
    completer = getattr(parameter, "_custom_shell_complete", None)
    function = getattr(completer, "__wrapped__", completer)
    return None if function is None else f"{function.__module__}:{function.__qualname__}"


class _Tree(click.Group):
    """Click group that builds each of its commands when asked for it, from the cached description of the command."""

    facts: CommandFacts

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands that are not hidden, in the order of the cache."""
        del ctx
        return [name for name, facts in self.facts["commands"].items() if not facts["is_hidden"]]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Build the command *cmd_name* from its cached description; None if the group has no such command."""
        del ctx
        facts = self.facts["commands"].get(cmd_name)
        return None if facts is None else _command(cmd_name, facts)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the completions of *incomplete*: command names, each with its short help, and options of the group."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self.facts["commands"][name]["help"]) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


def _command(name: str, facts: CommandFacts) -> click.Command:
    group = _Tree(name) if "commands" in facts else None
    command = group or click.Command(name)
    if group is not None:
        group.facts = facts
    command.help = facts["help"]
    command.params = [_parameter(each) for each in facts["parameters"]]
    if facts["help_options"]:
        command.context_settings = {"help_option_names": facts["help_options"]}
    return command


def _parameter(facts: CommandFacts) -> click.Parameter:
    kind: click.ParamType[Any] | None = None
    if facts["type"]["param_type"] == "Choice":
        kind = click.Choice(facts["type"]["choices"])
    elif facts["type"]["param_type"] == "Path":
        kind = click.Path(**{name: facts["type"][name] for name in _PATHS})
    completer = None if facts["completer"] is None else _deferred_completer(facts["completer"])
    if facts["param_type_name"] == "argument":
        return click.Argument(
            [facts["name"]], nargs=facts["nargs"], type=kind, required=False, shell_complete=completer
        )
    is_flag = facts["is_flag"] or facts["count"]
    return click.Option(
        [facts["name"], *facts["opts"], *facts["secondary_opts"]],
        is_flag=is_flag,
        type=None if is_flag else kind,
        nargs=facts["nargs"],
        multiple=facts["multiple"],
        help=facts["help"],
        hidden=facts["hidden"],
        shell_complete=completer,
    )


def _deferred_completer(dotted: str) -> Any:
    """Return a completion function that imports and calls the function *dotted*, such as `package.module:function`."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        module, _, name = dotted.partition(":")
        return getattr(import_module(module), name)(ctx, param, incomplete)

    return complete
