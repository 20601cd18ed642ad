"""Tests of settings: precedence, sources, errors, and agent definitions that override them."""

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest

from coterie.agents.permissions.types import MODES
from coterie.agents.runtime.setup.sandbox_setup import strictest_sandbox
from coterie.agents.settings import SETTINGS, SandboxSettings, Settings
from coterie.errors import ConfigInvalid
from coterie.orchestrator.settings.settings_loader import apply_definition, load_settings
from coterie.trusted_files import TrustedContents, TrustedFiles

DOCUMENT = Path(__file__).parents[3] / "docs/settings.md"


@attrs.frozen(kw_only=True)
class Places:
    """Settings files of one user, one project and one machine."""

    working: Path
    user: Path
    project: Path
    local: Path
    managed: Path

    def load(self, flags: dict[str, object] | None = None, **environ: str) -> Settings:
        return load_settings(self.working, flags or {}, environ, managed=self.managed)

    def refusal(self, flags: dict[str, object] | None = None, **environ: str) -> str:
        with pytest.raises(ConfigInvalid) as refused:
            self.load(flags, **environ)
        assert "\n" not in str(refused.value)
        return str(refused.value)


@pytest.fixture
def places(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.delenv("COTERIE_PROJECT_DIR", raising=False)
    for directory in ("home", "repo/.coterie", "repo/.git", "repo/src", "etc"):
        (tmp_path / directory).mkdir(parents=True)
    return Places(
        working=tmp_path / "repo/src",
        user=tmp_path / "home/settings.toml",
        project=tmp_path / "repo/.coterie/settings.toml",
        local=tmp_path / "repo/.coterie/settings.local.toml",
        managed=tmp_path / "etc/settings.toml",
    )


def test_each_source_overrides_the_previous(places: Places) -> None:
    """Order: user, project, local, environment, command line, managed."""
    key, variable = "layers.results.total", "COTERIE_LAYERS_RESULTS_TOTAL"

    def load(flags: dict[str, object] | None = None, **environ: str) -> tuple[int, str]:
        settings = places.load(flags, **environ)
        assert settings.layers.results.cap == 50_000
        return settings.layers.results.total, settings.source(key)

    for number, path in enumerate((places.user, places.project, places.local), 1):
        path.write_text(f"[layers.results]\ntotal = {number}\n")
        assert load() == (number, str(path))
    assert load(None, **{variable: "4"}) == (4, variable)
    assert load({key: 5}, **{variable: "4"}) == (5, "command line")
    places.managed.write_text("layers.results.total = 6\n")
    assert load({key: 5}, **{variable: "4"}) == (6, str(places.managed))


def test_every_type_of_value_can_be_set(places: Places) -> None:
    places.user.write_text(
        """
        max_budget_usd = 0.1
        max_seconds = 90
        thinking = false
        memory_directory = "~/memory"
        layers.clearing = {by_time = false, keep = 1}
        """
    )
    settings = places.load()
    assert settings.max_budget_usd == Decimal("0.1")
    assert (settings.max_seconds, type(settings.max_seconds)) == (90.0, float)
    assert (settings.thinking, settings.memory_directory) == (False, Path.home() / "memory")
    assert (settings.layers.clearing.by_time, settings.layers.clearing.keep) == (False, 1)
    places.local.write_text('memory_directory = "/tmp/mine"\n')
    assert places.load().memory_directory == Path("/tmp/mine"), "the file is not the repository's"  # noqa: S108 - a name


def test_lists_are_concatenated_with_source_of_each_item(places: Places) -> None:
    places.user.write_text('[permissions]\nallow = ["Bash(ls:*)", "Read"]\n')
    places.project.write_text('[permissions]\nallow = ["Read", "Edit(src/**)"]\ndeny = ["Bash(rm:*)"]\n')
    places.managed.write_text('web.hosts = ["a.org"]')
    settings = places.load({"permissions.allow": ("Grep",), "web.hosts": ["b.org"]})
    assert set(settings.web.hosts) == {"a.org", "b.org"}
    assert settings.permissions.allow == ("Bash(ls:*)", "Read", "Edit(src/**)", "Grep")
    user, project = str(places.user), str(places.project)
    assert settings.item_sources("permissions.allow") == (user, user, project, "command line")
    assert settings.source("permissions.allow") == f"{user}, {project}, command line"
    assert (settings.permissions.deny, settings.source("permissions.deny")) == (("Bash(rm:*)",), project)


def test_user_file_is_not_project_file_in_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / ".coterie"))
    (tmp_path / ".coterie").mkdir()
    (tmp_path / ".coterie/settings.toml").write_text('[permissions]\nmode = "bypassPermissions"\nallow = ["Read"]\n')
    settings = load_settings(tmp_path, {}, {}, managed=tmp_path / "none.toml")
    assert (settings.permissions.mode, settings.permissions.allow) == ("bypassPermissions", ("Read",))


@pytest.mark.parametrize(
    ("text", "file", "reason"),
    [
        ('permissions.mode = "bypassPermissions"', "project", "permissions.mode may not be bypassPermissions in a"),
        ('permissions.mode = "bypassPermissions"', "local", "permissions.mode may not be bypassPermissions in a"),
        ('memory_directory = "/root/.ssh"', "project", "memory_directory may not be set by a project"),
        ('sandbox.write = ["/"]', "project", "sandbox.write may not be set by a project"),
        ('sandbox.write = ["/"]', "local", "sandbox.write may not be set by a project"),
        ("sandbox.auto_allow = true", "project", "sandbox.auto_allow may not be set by a project"),
        ("sandbox.auto_allow = true", "local", "sandbox.auto_allow may not be set by a project"),
        ('web.hosts = ["evil.example"]', "project", "web.hosts may not be set by a project"),
        ('web.hosts = ["evil.example"]', "local", "web.hosts may not be set by a project"),
        ('layers.dreaming.deletions = "apply"', "project", "layers.dreaming.deletions may not be apply in a project"),
    ],
)
def test_project_cannot_loosen_what_the_user_may(places: Places, text: str, file: str, reason: str) -> None:
    path: Path = getattr(places, file)
    path.write_text(text)
    assert places.refusal().startswith(f"{path}: {reason}")
    path.unlink()
    places.user.write_text(text)
    key = text.partition(" = ")[0]
    assert places.load().source(key) == str(places.user)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("max_turn = 3", "there is no setting 'max_turn'; did you mean max_turns?"),
        ("[layer.results]\ncap = 1", "there is no setting 'layer'; did you mean layers?"),
        ('fsync = "turn"', "there is no setting 'fsync'; did you mean transcript.fsync?"),
        ("[layers.window]\nkeep = 1", "there is no setting 'layers.window.keep'; did you mean layers.clearing.keep?"),
        ("[transcript]\nzzz = 1", "there is no setting 'transcript.zzz'; known: transcript.fsync"),
        ('"two\\nlines" = 1', "there is no setting 'two\\nlines'; known: agent, "),
        ('max_turns = "many"', "max_turns is 'many'; it should be a whole number above 0"),
        ("max_turns = 0", "max_turns is 0; it should be a whole number above 0"),
        ("max_budget_usd = nan", "max_budget_usd is NaN; it should be a number above 0"),
        ("max_seconds = 1e999", "max_seconds is 1E+999; it should be a number above 0"),
        ("model = 5", "model is 5; it should be a text in quotes"),
        ("model = ' '", "model is ' '; it should be a text in quotes"),
        ("layers = 3", "layers is 3; it should be a table, begun by [layers]"),
        ('effort = "hi"', "effort is 'hi'; it should be one of low, medium, high, xhigh, max"),
        ('[permissions]\nallow = "Read"', "permissions.allow is 'Read'; it should be a list of texts in quotes"),
        ('memory_directory = "x"', "memory_directory is 'x'; it should be an absolute path in quotes, or one that"),
        ('sandbox = "chroot"', "sandbox.mode is 'chroot'; it should be one of none, landlock, bubblewrap"),
        ('[sandbox]\nwrite = ["x"]', "sandbox.write is a list; it should be a list of paths in quotes that are abs"),
        ("max_turns = ", "the file is not readable TOML: "),
        ("x = " + "[" * 5_000, "the file is not readable TOML: "),
    ],
)
def test_error_names_file_key_and_correct_usage(places: Places, text: str, reason: str) -> None:
    places.user.write_text(text)
    assert places.refusal().startswith(f"{places.user}: {reason}")


def test_flag_and_managed_file_are_checked_like_the_file_of_the_user(places: Places) -> None:
    assert places.refusal({"permissions.mode": "x"}).startswith("command line: permissions.mode is 'x'; it should be")
    places.managed.write_bytes(b"\xff")
    assert places.refusal().startswith(f"{places.managed}: the file is not readable TOML: ")
    places.managed.unlink()
    os.mkfifo(places.managed)
    assert places.refusal().startswith(f"{places.managed}: the path is not a regular file"), "opening it would block"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("RESULTS_CAP", "60_000", 60_000), ("CLEARING_BY_API", "False", False), ("WINDOW_COMPACT_WINDOW", "9", 9)],
)
def test_variable_overrides_number_or_switch_of_layer(places: Places, name: str, text: str, value: object) -> None:
    settings = places.load(None, **{f"COTERIE_LAYERS_{name}": text, "COTERIE_LAYERS_RESULTS_BASH": ""})
    section, _, key = name.lower().partition("_")
    assert getattr(getattr(settings.layers, section), key) == value
    assert settings.source(f"layers.{section}.{key}") == f"COTERIE_LAYERS_{name}"


def test_invalid_variable_is_refused_by_name(places: Places) -> None:
    prefix = "COTERIE_LAYERS_"
    hint = f"{prefix}RESULTS_CAPS: the variable overrides no setting; did you mean {prefix}RESULTS_CAP?"
    assert places.refusal(None, **{f"{prefix}RESULTS_CAPS": "1"}) == hint
    reason = f"{prefix}CLEARING_KEEP: layers.clearing.keep is 'all'; it should be a whole number above 0"
    assert places.refusal(None, **{f"{prefix}CLEARING_KEEP": "all"}) == reason


def test_permission_modes_equal_those_of_agents() -> None:
    assert set(get_args(SETTINGS["permissions.mode"].kind)) == set(MODES)


def _toml(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:_}"
    return "[]" if value == () else f'"{value}"'


def test_every_setting_is_documented_with_default_and_meaning() -> None:
    rows = re.findall(r"(?m)^\| `([a-z_.]+)` \| `?(.+?)`? \| (.+) \|$", DOCUMENT.read_text())
    assert [(key, default) for key, default, _ in rows] == [
        (key, _toml(setting.default)) for key, setting in SETTINGS.items()
    ]
    assert all(len(meaning.split()) > 3 for _, _, meaning in rows)


def test_approved_include_is_stored_and_follows_links(places: Places, tmp_path: Path) -> None:
    approved = TrustedFiles.of(places.working)
    notes, link, not_utf8 = tmp_path / "notes.md", tmp_path / "link.md", Path(os.fsdecode(b"/\xff.md"))
    notes.touch()
    link.symlink_to(notes)
    assert notes not in approved
    for path in (link, tmp_path / "other.md", not_utf8):
        approved.approve(path)
    again = TrustedFiles.of(places.working)
    assert [path in again for path in (notes, link, not_utf8, tmp_path / "no.md")] == [True, True, True, False]
    assert approved.path.stat().st_mode & 0o777 == 0o600


def test_concurrent_approvals_are_all_kept(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.md" for number in range(6)]
    with ThreadPoolExecutor(len(files)) as threads:
        list(threads.map(TrustedFiles(tmp_path / "approved.json").approve, files))
    approved = TrustedFiles(tmp_path / "approved.json")
    assert all(file in approved for file in files)


@pytest.mark.parametrize("content", ["", "[]", '{"v": 2, "paths": [], "digests": []}', '{"v": 1}'])
def test_damaged_record_approves_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "approved.json"
    path.write_text(content)
    files, contents = TrustedFiles(path), TrustedContents(path)
    uses: list[Callable[[], object]] = [
        lambda: tmp_path in files,
        lambda: files.approve(tmp_path),
        lambda: b"x" in contents,
        lambda: contents.approve(b"x"),
    ]
    for use in uses:
        with pytest.raises(ConfigInvalid):
            use()
    assert path.read_text() == content


def test_contents_are_approved_by_bytes_and_category(places: Places) -> None:
    approved = TrustedContents.of(places.working, "hooks")
    approved.approve(b"make lint", b"make test")
    again = TrustedContents.of(places.working, "hooks")
    assert b"make lint" in again
    assert b"make test" in again
    assert b"make lint " not in again
    assert b"make lint" not in TrustedContents.of(places.working, "servers")
    assert b"make" not in approved.path.read_bytes(), "the record must not be taken for the content"


@pytest.mark.parametrize("file", ["project", "local"])
def test_project_can_only_tighten_sandbox(places: Places, file: str) -> None:
    theirs: Path = getattr(places, file)
    places.user.write_text('[sandbox]\nmode = "landlock"\nnetwork = false\nwrite = ["/cache"]\nhide = ["/mine"]')
    theirs.write_text('[sandbox]\nmode = "none"\nnetwork = true\nhide = ["/theirs"]')
    sandbox = places.load().sandbox
    assert (sandbox.mode, sandbox.network, sandbox.hide) == ("landlock", False, (Path("/mine"), Path("/theirs")))
    theirs.write_text('sandbox = "bubblewrap"')
    assert (places.load().sandbox.mode, places.load().sandbox.write) == ("bubblewrap", (Path("/cache"),))
    places.user.write_text("sandbox.network = true")
    theirs.write_text('[sandbox]\nmode = "landlock"\nnetwork = false')
    assert (places.load().sandbox.mode, places.load().sandbox.network) == ("landlock", False)
    # The settings of the user and of the machine are not the project's.
    assert places.load({"sandbox.mode": "none"}).sandbox.mode == "none"
    places.managed.write_text('sandbox = "bubblewrap"')
    assert places.load({"sandbox.mode": "none"}).sandbox.mode == "bubblewrap"


def test_agent_is_never_less_restricted_than_its_ancestors() -> None:
    opened = (Path("/a/b"), Path("/c"))
    mine = SandboxSettings(mode="landlock", network=True, write=opened, hide=(Path("/x"),), auto_allow=True)
    above = SandboxSettings(mode="bubblewrap", write=(Path("/a"),), hide=(Path("/y"),))
    assert strictest_sandbox(mine, above) == SandboxSettings(
        mode="bubblewrap", write=(Path("/a/b"),), hide=(Path("/x"), Path("/y"))
    )
    assert strictest_sandbox(mine) == mine


CAREFUL = """---
name: careful
description: Looks twice.
model: haiku
permissionMode: {mode}
maxTurns: 7
---
Look twice.
"""


def apply_careful(places: Places, mode: str, flags: dict[str, object] | None = None) -> Settings:
    agents = places.project.parent / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "careful.md").write_text(CAREFUL.format(mode=mode))
    laid, kind = apply_definition(places.load({"agent": "careful", **(flags or {})}), places.working)
    assert kind is not None
    assert kind.prompt == "Look twice."
    return laid


def test_definition_overrides_settings_file_but_not_command_line_or_managed_file(places: Places) -> None:
    places.user.write_text("model = 'opus'\nmax_turns = 50\n")
    laid = apply_careful(places, "plan")
    assert (laid.model, laid.max_turns, laid.permissions.mode) == ("haiku", 7, "plan")
    laid = apply_careful(places, "plan", {"model": "sonnet", "max_turns": 3, "permissions.mode": "acceptEdits"})
    assert (laid.model, laid.max_turns, laid.permissions.mode) == ("sonnet", 3, "acceptEdits")
    assert apply_definition(places.load(), places.working) == (places.load(), None)
    places.managed.write_text("[permissions]\nmode = 'plan'\n")
    assert apply_careful(places, "acceptEdits").permissions.mode == "plan"


def test_project_definition_cannot_bypass_permissions_but_user_can(places: Places) -> None:
    with pytest.raises(ConfigInvalid, match="may not set bypassPermissions"):
        apply_careful(places, "bypassPermissions")
    laid = apply_careful(places, "bypassPermissions", {"permissions.mode": "bypassPermissions"})
    assert laid.permissions.mode == "bypassPermissions"
