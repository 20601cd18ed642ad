"""`coterie serve`: the embedded Messages API server as a process."""

import errno
import gc
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import attrs
import click
import trio

from coterie.clock import CLOCK_FILE_VARIABLE, Clock
from coterie.orchestrator.cli.output import ExitCode, UsageRefused
from coterie.scenarios.api_server.api.messages_endpoint import ServerOptions
from coterie.scenarios.api_server.api.rate_limiter import RateLimits
from coterie.scenarios.api_server.app import EmbeddedServer
from coterie.scenarios.api_server.control_endpoint import PREFIX, TOKEN_HEADER
from coterie.scenarios.api_server.http.http_server import serve_http
from coterie.scenarios.api_server.request.request_log import RequestLogEntry
from coterie.scenarios.api_server.script.script_parser import ScriptInvalid, load_script

DEFAULT_SCRIPT = Path(__file__).parents[1] / "scripts" / "echo.yaml"
PORT = 8377


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Listen on this port of 127.0.0.1; 0 chooses a free port.",
)
@click.option(
    "--script",
    type=click.Path(path_type=Path),
    help="YAML file with the replies, see docs/scripts.md.  [default: repeat the text of the request]",
)
@click.option(
    "--strict/--lenient",
    default=True,
    show_default=True,
    help="strict: reject what the real API rejects; lenient: reject only requests that cannot be answered.",
)
@click.option(
    "--seed",
    type=int,
    envvar="COTERIE_SEED",
    default=0,
    help="Seed of the ids in replies, and of faults that are injected at random.  [default: $COTERIE_SEED, or 0]",
)
@click.option(
    "--clock",
    type=click.Path(path_type=Path),
    envvar=CLOCK_FILE_VARIABLE,
    help="Text file with one number: how many seconds the server's clock is ahead of real time; no file means 0. Other "
    "processes can read and change it too; see docs/server.md.  [default: $COTERIE_CLOCK, or no file]",
)
@click.option(
    "--token",
    envvar="COTERIE_CONTROL_TOKEN",
    help="Password for requests to /_coterie/, which show the request log and inject faults; printed at start.  "
    "[default: $COTERIE_CONTROL_TOKEN, or random]",
)
@click.option(
    "--rpm",
    type=click.IntRange(1),
    help="Limit of requests per minute for each API key and model.  [default: no limit]",
)
@click.option("--itpm", type=click.IntRange(1), help="Likewise for input tokens per minute.  [default: no limit]")
@click.option("--otpm", type=click.IntRange(1), help="Likewise for output tokens per minute.  [default: no limit]")
@click.option(
    "--while-stdin-open",
    is_flag=True,
    help="Stop with exit code 0 when standard input is closed, so that the server ends with its parent process.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print one line for each request to standard error.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the address, the token and the process id as one line of JSON."
)
def serve(  # noqa: PLR0913 - one parameter for each option
    *,
    port: int,
    script: Path | None,
    strict: bool,
    seed: int,
    clock: Path | None,
    token: str | None,
    rpm: int | None,
    itpm: int | None,
    otpm: int | None,
    while_stdin_open: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run a local server that behaves as the Anthropic Messages API, with scripted replies, until Ctrl-C.

    It needs no API key and no network. To use it with any client of the API, set ANTHROPIC_BASE_URL to the address that
    it prints, and ANTHROPIC_API_KEY to any text. Exits 130 after Ctrl-C, 2 if the port or the script cannot be used.
    """
    try:
        loaded = load_script(script or DEFAULT_SCRIPT)
    except ScriptInvalid as exc:
        raise UsageRefused(str(exc)) from exc
    rates = RateLimits(requests=rpm, input_tokens=itpm, output_tokens=otpm)
    options = ServerOptions(script=loaded, seed=seed, is_strict=strict, rates=rates)
    if token:
        options = attrs.evolve(options, token=token)
    server = EmbeddedServer(options, Clock(file=clock), watch=_print_entry if verbose else None)
    # The request log keeps thousands of live objects. With the default thresholds, scanning them took a quarter of the
    # time of a small request.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
    sys.exit(trio.run(partial(_run, server, port=port, while_stdin_open=while_stdin_open, as_json=as_json)))


def _print_entry(entry: RequestLogEntry) -> None:
    click.echo(str(entry), err=True)


async def _run(server: EmbeddedServer, *, port: int, while_stdin_open: bool, as_json: bool) -> ExitCode:
    """Serve requests until SIGTERM or SIGINT, or with *while_stdin_open* the end of standard input.

    Returns the exit code of the command. Raises `UsageRefused` if the port cannot be opened.
    """
    code = ExitCode.DONE
    failure: OSError | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            try:
                actual: int = await nursery.start(partial(serve_http, server, port=port))
            except OSError as exc:
                failure = exc  # raised here, it would arrive in an exception group
                nursery.cancel_scope.cancel()
            else:
                _announce(server, actual, as_json=as_json)
            if while_stdin_open:
                nursery.start_soon(_cancel_at_end_of_stdin, nursery.cancel_scope)
            async for number in signals:
                code = ExitCode.TERMINATED if number == signal.SIGTERM else ExitCode.INTERRUPTED
                nursery.cancel_scope.cancel()
    if failure is not None:
        raise UsageRefused(_port_problem(failure, port)) from failure
    return code


async def _cancel_at_end_of_stdin(scope: trio.CancelScope) -> None:
    # The parent never writes: this end of the pipe closes when the parent closes its end or exits.
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        async for _ in stdin:
            pass
    scope.cancel()


def _announce(server: EmbeddedServer, port: int, *, as_json: bool) -> None:
    """Print the server's address and control token to standard output. Call it once the port accepts connections."""
    url = f"http://127.0.0.1:{port}"
    token = server.options.token
    if as_json:
        click.echo(json.dumps({"url": url, "port": port, "token": token, "pid": os.getpid()}))
        return
    click.echo(f"Messages API on {url}  (script {server.options.script.source})")
    click.echo(f"  export ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=any")
    click.echo(f"  control: {url}{PREFIX}requests  with header {TOKEN_HEADER}: {token}")


def _port_problem(exc: OSError, port: int) -> str:
    if exc.errno == errno.EADDRINUSE:
        return f"port {port} is in use; choose another with --port, or --port 0 for a free one"
    return f"cannot listen on port {port}: {exc.strerror or exc}"
