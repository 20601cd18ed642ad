"""`coterie completion SHELL`: prints a shell's completion script, and the candidates that this script requests."""

import os
from typing import Literal, get_args

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from coterie.orchestrator.cli.command_tree import load_command_tree

Shell = Literal["bash", "zsh", "fish"]
VARIABLE = "_COTERIE_COMPLETE"
"""Environment variable that the completion script sets: `bash_complete`, `zsh_complete` or `fish_complete`."""
PROGRAM = "coterie"

_FISH = """\
function %(complete_func)s
    set -l words (commandline -cp)
    set -l word (commandline -t)
    for line in (env %(complete_var)s=fish_complete COMP_WORDS="$words" COMP_CWORD="$word" %(prog_name)s)
        set -l parts (string split --max 1 , -- $line)
        switch $parts[1]
            case dir
                __fish_complete_directories $parts[2]
            case file
                __fish_complete_path $parts[2]
            case plain
                echo $parts[2]
        end
    end
end

complete --keep-order --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _Fish(FishComplete):
    """Completion for fish that keeps the order of candidates and shows their descriptions."""

    source_template = _FISH

    def format_completion(self, item: CompletionItem) -> str:
        """Return *item* as a line for the fish script: `type,value`, then a tab and a description if it has one."""
        return f"{item.type},{item.value}\t{item.help}" if item.help else f"{item.type},{item.value}"


_SHELLS: dict[Shell, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": _Fish}


def print_candidates(program: click.Group, instruction: str) -> bool:
    """Print the script (*instruction* such as `bash_source`) or candidates (`bash_complete`); False for any other."""
    name, _, wanted = instruction.partition("_")
    shell = next((kind for known, kind in _SHELLS.items() if known == name), None)
    if shell is None or wanted not in ("source", "complete"):
        return False
    if wanted == "source":
        click.echo(shell(program, {}, PROGRAM, VARIABLE).source())
    else:
        click.echo(shell(load_command_tree(program), {}, PROGRAM, VARIABLE).complete())
    return True


@click.command()
@click.argument("shell", type=click.Choice(get_args(Shell)), required=False)
def completion(shell: Shell | None) -> None:
    """Print a script for the shell, so that the Tab key completes commands, options, session ids and agent names.

    Without an argument, the shell is taken from the variable $SHELL. Add the line for your shell to its start file:

    \b
    bash:  eval "$(coterie completion bash)"     in ~/.bashrc
    zsh:   eval "$(coterie completion zsh)"      in ~/.zshrc, after compinit
    fish:  coterie completion fish | source      in ~/.config/fish/config.fish
    """  # noqa: D301 - click marks a preformatted paragraph by a real \b
    name = shell or os.environ.get("SHELL", "").rpartition("/")[2]
    if name not in _SHELLS:
        raise click.UsageError(
            f"unknown shell {name!r}; give one of {', '.join(_SHELLS)}, as in: coterie completion bash"
        )
    program = click.get_current_context().find_root().command
    assert isinstance(program, click.Group)
    print_candidates(program, f"{name}_source")
