"""Proposed rules: the narrowest rules that an approval for the session adds."""

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from coterie.agents.permissions.commands.command_line import CommandLine, SimpleCommand
from coterie.agents.permissions.commands.command_pattern import CommandPattern
from coterie.agents.permissions.commands.command_wrappers import WRAPPERS, opaque_reason
from coterie.agents.permissions.name_patterns import DomainPattern
from coterie.agents.permissions.path_pattern import PathPattern
from coterie.agents.permissions.rules import Rule, ToolCallFacts

HAVE_SUBCOMMANDS = frozenset(
    {
        *("git", "gh", "hg", "svn", "npm", "pnpm", "yarn", "bun", "deno", "cargo", "go", "rustup", "dotnet", "mvn"),
        *("gradle", "make", "just", "task", "pip", "pip3", "pipx", "uv", "poetry", "pdm", "conda", "hatch", "tox"),
        "nox",
        *("docker", "podman", "kubectl", "helm", "terraform", "apt", "apt-get", "brew", "dnf", "apk", "systemctl"),
        *("bundle", "gem", "rails", "composer", "php", "mix", "aws", "gcloud", "az", "coterie"),
    }
)
"""Programs whose second word selects the action."""
ONLY_EXACT = WRAPPERS | {
    *("python", "python3", "node", "perl", "ruby", "php", "lua", "awk", "sed", "npx", "bunx", "uvx", "source", "."),
    *("rm", "rmdir", "mv", "dd", "shred", "truncate", "ln", "chmod", "chown", "kill", "pkill", "killall", "tee"),
    *("curl", "wget", "scp", "rsync", "nc", "cd", "export", "alias", "set", "shopt", "enable", "hash"),
}
"""Programs that can do anything, destroy or send data: an approval must not cover all their arguments."""

_SUBCOMMAND = re.compile(r"[a-z][a-z0-9:_-]*")


def proposed_rules(call: ToolCallFacts, allow: Sequence[Rule] = (), *, is_exact: bool = False) -> tuple[Rule, ...]:
    """Return the rules that, in addition to *allow*, would cover *call* and similar calls.

    With *is_exact*, the rules cover only *call*. Empty if no rule can cover the call.
    """
    if call.command is not None:
        return _for_commands(call.command, allow, is_exact=is_exact)
    if call.host is not None:
        text = f"WebFetch(domain:{call.host})"
        return (Rule(tool=call.tool.name, subject=DomainPattern(call.host), text=text),)
    if call.paths:
        return tuple(_for_path(call, path, is_exact=is_exact) for path in dict.fromkeys(call.paths))
    return (Rule(tool=call.tool.name, text=call.tool.name),)


def _for_commands(line: CommandLine, allow: Sequence[Rule], *, is_exact: bool) -> tuple[Rule, ...]:
    commands = [command for command in line.commands if command.words]
    if opaque_reason(line) is not None or line.substituted or not all(command.is_plain for command in line.commands):
        return ()
    if not all(word.is_literal for command in commands for word in command.words):
        return ()
    missing = (command for command in commands if not any(rule.covers_command(command) for rule in allow))
    return tuple(dict.fromkeys(_for_command(command, is_exact=is_exact) for command in missing))


def _for_command(command: SimpleCommand, *, is_exact: bool) -> Rule:
    words = tuple(word.text for word in command.words)
    has_subcommand = command.name in HAVE_SUBCOMMANDS
    if is_exact or command.name in ONLY_EXACT or (has_subcommand and not any(map(_SUBCOMMAND.fullmatch, words[1:2]))):
        pattern = CommandPattern(words, is_open=False)
    else:
        pattern = CommandPattern(words[: 2 if has_subcommand else 1], is_open=True)
    return Rule(tool="Bash", subject=pattern, text=f"Bash({pattern})")


def _for_path(call: ToolCallFacts, path: Path, *, is_exact: bool) -> Rule:
    tool = "Edit" if call.tool.access == "edit" else "Read"
    is_inside = path.is_relative_to(call.root)
    is_wide = call.tool.access == "edit" and is_inside and path.parent != call.root and not is_exact
    target = path.parent if is_wide else path
    name = str(target.relative_to(call.root) if is_inside else target)
    text = glob.escape(name) + "/**" * is_wide
    # A name without a slash would match in every directory.
    text = text if "/" in text else f"./{text}"
    return Rule(tool=tool, subject=PathPattern.exactly(target), text=f"{tool}({text})")
