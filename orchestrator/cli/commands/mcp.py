"""`coterie mcp`: lists, approves and tests MCP servers."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
from click.shell_completion import CompletionItem

from coterie.agents.definitions.definition_files import FileProblem
from coterie.orchestrator.cli.output import ExitCode, UsageRefused, one_line, sanitize
from coterie.orchestrator.cli.shared_options import json_option
from coterie.orchestrator.mcp.mcp_servers import KnownServer, McpServers, approve_servers, load_servers
from coterie.orchestrator.settings.settings_loader import load_settings
from coterie.process_identity import is_called_by_agent
from coterie.suggestions import did_you_mean

SHOWN = 200
"""Maximum characters of a command, an address, a tool description or a reason on one line."""


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions: names of the MCP servers that are configured for the current directory."""
    servers = load_servers(Path.cwd()).servers
    names = dict.fromkeys(server.name for server in servers)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.group()
def mcp() -> None:
    """List, approve and test MCP servers: programs or web addresses that give agents more tools."""


@mcp.command("list", short_help="List the MCP servers that agents can use here.")
@json_option()
def list_servers(*, is_json: bool) -> None:
    """List the MCP servers that agents can use in the current directory, without starting them.

    An MCP server is a program or a web address that gives agents more tools. The list shows where a server is
    configured, its command or address, and if it needs approval. Invalid entries of the configuration are printed to
    standard error, or with --json as part of the output; the exit code stays 0.
    """
    found = load_servers(Path.cwd())
    if is_json:
        rows = [_row(server) for server in found.servers]
        click.echo(json.dumps({"servers": rows, "problems": [str(problem) for problem in found.problems]}))
        return
    for server in found.servers:
        state = "" if server.is_approved else "  needs approval"
        click.echo(f"{server.name}  {server.scope}  {one_line(server.config.where, SHOWN)}{state}")
    if not found.servers:
        click.echo("no servers; configure some in .mcp.json, or in mcp.json of your configuration directory")
    _print_problems(found.problems)


@mcp.command(short_help="Allow MCP servers of this project.")
@click.argument("names", nargs=-1, shell_complete=_complete)
@click.option("--all", "is_all", is_flag=True, help="Approve all servers that need approval, instead of NAMES.")
@json_option()
def approve(*, names: Sequence[str], is_all: bool, is_json: bool) -> None:
    """Allow agents to use the MCP servers NAMES of the project in the current directory.

    A server that a project brings runs only after approval, because it may be any program. Give either NAMES from
    `coterie mcp list` or --all. Approve again after the configuration of a server has changed.
    """
    if is_called_by_agent():
        raise UsageRefused("an agent cannot approve MCP servers; ask the user to run `coterie mcp approve`")
    found = load_servers(Path.cwd())
    if is_all == bool(names):
        waiting = ", ".join(server.name for server in found.waiting)
        raise click.UsageError(f"give names of servers or --all; servers that need approval: {waiting or 'none'}")
    chosen = list(found.waiting) if is_all else _named(found, names)
    approve_servers(Path.cwd(), chosen)
    if is_json:
        click.echo(json.dumps([_row(server) | {"is_approved": True} for server in chosen]))
        return
    for server in chosen:
        click.echo(f"approved {server.name}: {one_line(server.config.where, SHOWN)}")
    if not chosen:
        click.echo("no server needs approval")


@mcp.command(short_help="Start MCP servers and list their tools.")
@click.argument("names", nargs=-1, shell_complete=_complete)
@json_option()
def test(*, names: Sequence[str], is_json: bool) -> None:
    """Start the MCP servers NAMES, list the tools that they offer, and stop them.

    Give NAMES from `coterie mcp list` [default: all servers that need no approval]. Exits 1 if a server cannot be
    started or does not list its tools; 2, and starts none, if one of NAMES needs approval.
    """
    from coterie.orchestrator.mcp.host_process import ServerCheck, check_servers  # noqa: PLC0415 - imports trio

    found = load_servers(Path.cwd())
    chosen = _named(found, names) if names else list(found.approved)
    if waiting := [server.name for server in chosen if not server.is_approved]:
        raise UsageRefused(f"servers not approved: {', '.join(waiting)}; run `coterie mcp approve {' '.join(waiting)}`")
    settings = load_settings(Path.cwd(), {}, {})
    tried: list[ServerCheck] = check_servers([server.config for server in chosen], settings.mcp.start_seconds)
    if is_json:
        click.echo(json.dumps([attrs.asdict(each) for each in tried]))
    else:
        for each in tried:
            click.echo(f"{each.name}  {one_line(each.failure, SHOWN) if each.failure else 'works'}")
            for name, description in each.tools.items():
                click.echo(f"  {name}  {one_line(description, SHOWN)}")
            for reason in each.left_out:
                click.echo(f"  skipped: {one_line(reason, SHOWN)}")
        _print_problems(found.problems)
    sys.exit(ExitCode.FAILED if any(each.failure for each in tried) else ExitCode.DONE)


def _named(found: McpServers, names: Iterable[str]) -> list[KnownServer]:
    """Return the servers *names*; of two with one name, the unapproved. Raises `UsageRefused` for an unknown name."""
    by_name = {server.name: server for server in found.servers}
    for name in names:
        if name not in by_name:
            raise UsageRefused(f"unknown server {name!r}; {did_you_mean(name, by_name)}")
    return [by_name[name] for name in dict.fromkeys(names)]


def _row(server: KnownServer) -> dict[str, Any]:
    """Return a server as a JSON object, without its environment and HTTP headers, which may contain secrets."""
    return {
        "name": server.name,
        "transport": server.config.transport,
        "where": server.config.where,
        "scope": server.scope,
        "source": str(server.source),
        "is_shared": server.config.is_shared,
        "is_approved": server.is_approved,
    }


def _print_problems(problems: Iterable[FileProblem]) -> None:
    for problem in problems:
        click.echo(sanitize(str(problem)), err=True)
