"""Import direction, read from the source code."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ALLOWED = {
    "scenarios": {"scenarios", "orchestrator", "agents", "mailbox", "memory"},
    "orchestrator": {"orchestrator", "agents", "mailbox", "memory"},
    "agents": {"agents", "mailbox", "memory"},
    "mailbox": {"mailbox"},
    "memory": {"memory"},
}
"""Directories that each directory may import; all may import the kernel."""

SHARED_WITH_SERVER = {"coterie.agents.loop.model.catalog", "coterie.agents.loop.model.usage", "coterie.agents.errors"}
"""Modules of `agents` that the embedded server may import: the table of models and prices."""


def _modules(directory: str) -> list[Path]:
    return sorted((ROOT / directory).rglob("*.py"))


@cache
def _imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    others = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module is not None]
    return plain | {f"{node.module}.{alias.name}" for node in others for alias in node.names}


@pytest.mark.parametrize("directory", ALLOWED)
def test_a_directory_imports_only_what_lies_below_it(directory: str) -> None:
    host = ROOT / "orchestrator/mcp/host"
    for path in _modules(directory):
        for name in _imports(path):
            package, _, rest = name.partition(".")
            below = rest.partition(".")[0]
            if package == "coterie" and below in ALLOWED:
                assert below in ALLOWED[directory], f"{path.relative_to(ROOT)} imports {name}"
            assert package != "asyncio", f"{path.relative_to(ROOT)} imports another event loop"
            assert package not in {"mcp", "mcp_types"} or path.is_relative_to(host), f"{path.relative_to(ROOT)}: {name}"


def test_kernel_and_embedded_server_import_nothing_but_what_they_share() -> None:
    for module in ("clock.py", "files.py"):
        ours = {name for name in _imports(ROOT / "src/coterie" / module) if name.startswith("coterie.")}
        assert all(name.startswith(("coterie.clock", "coterie.files")) for name in ours), (module, ours)
    for path in _modules("scenarios/api_server"):
        shared = {name.rpartition(".")[0] for name in _imports(path) if name.startswith("coterie.agents")}
        assert shared <= SHARED_WITH_SERVER, path


def _loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_importing_coterie_loads_no_other_module() -> None:
    assert {name for name in _loaded_by("import coterie") if name.startswith("coterie")} == {"coterie"}


def test_help_and_usage_errors_load_neither_the_sdk_nor_trio() -> None:
    code = """
import contextlib, io, sys
from coterie.orchestrator.cli.main import main
for arguments in ["--help"], ["--version"], [], ["run", "--help"], ["run", "x", "--model", "no"]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main(arguments, standalone_mode=True)
"""
    assert not {"anthropic", "trio", "httpx2"} & _loaded_by(code)


CLIENTS = (
    *("orchestrator.cli.commands.run", "orchestrator.cli.project_approvals", "orchestrator.teams.team_file"),
    *("orchestrator.cli.live.view_choice", "orchestrator.cli.views.prompts", "orchestrator.cli.views.session_client"),
    *("orchestrator.control.client", "orchestrator.control.requests", "orchestrator.control.launch_client"),
    *("orchestrator.api.errors", "orchestrator.api.live_session", "orchestrator.api.open_session"),
    *("orchestrator.api.options", "orchestrator.api.public"),
)
"""Modules of clients, with those that `coterie run` imports when it starts a session."""
AGENT_ONLY = (
    *("coterie.agents.tools", "coterie.agents.runtime", "coterie.agents.layers", "coterie.agents.sandbox"),
    *("coterie.agents.loop.loop", "coterie.agents.loop.agent", "coterie.agents.loop.conversation.conversation"),
    *("coterie.agents.permissions.permissions", "coterie.agents.permissions.rules"),
    *("coterie.agents.permissions.commands", "coterie.agents.permissions.authorizer"),
    *("coterie.memory.store", "coterie.mailbox.router", "coterie.mailbox.transports.bridge", "anthropic"),
)
"""Packages and modules that clients must not load, because they do the work of an agent."""


def test_clients_load_message_types_and_not_what_interprets_them() -> None:
    loaded = _loaded_by("\n".join(f"import coterie.{module}" for module in CLIENTS))
    assert not {name for name in loaded for each in AGENT_ONLY if name == each or name.startswith(f"{each}.")}


def test_the_list_of_client_modules_has_the_whole_python_api() -> None:
    names = {f"orchestrator.api.{path.stem}" for path in (ROOT / "orchestrator/api").glob("*.py")}
    assert names - {"orchestrator.api.__init__"} <= set(CLIENTS)


def test_no_command_waits_for_the_sdk() -> None:
    """Code that calls a model runs in another process, or is imported right before the call."""
    paths = [path for path in (ROOT / "orchestrator/cli").rglob("*.py") if path.stem != "model_recall"]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    assert len(modules) > 40
    assert "anthropic" not in _loaded_by("\n".join(f"import coterie.{module}" for module in modules))


def test_only_the_process_that_holds_mcp_servers_loads_their_package() -> None:
    loaded = _loaded_by("import coterie.orchestrator.root.root, coterie.agents.runtime.agent_main")
    assert not {"mcp", "mcp_types", "coterie.orchestrator.mcp.host"} & loaded


def test_mailbox_of_the_standard_library_is_not_shadowed() -> None:
    code = "import mailbox; mailbox.Maildir"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_root_directories_are_linked_and_have_no_init() -> None:
    for directory in ALLOWED:
        link = ROOT / "src/coterie" / directory
        assert link.is_symlink(), directory
        assert link.readlink() == Path("../..") / directory
        assert not (ROOT / directory / "__init__.py").exists()
