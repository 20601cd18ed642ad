"""The documents are true: links and anchors exist, examples load, and the command lines in them parse."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from coterie.orchestrator.cli.main import main
from coterie.orchestrator.cli.output import ExitCode
from coterie.orchestrator.teams.team_file import load_team
from coterie.scenarios.runner.parsing.scenario_parser import load_scenario

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README_WORDS = 1200
TOPS = ("agents", "mailbox", "memory", "orchestrator", "scenarios", "src/coterie")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_SYNOPSIS = re.compile(r"[\[\]|]|\.\.\.|^coterie COMMAND")
"""Parts of a synopsis (`logs [SESSION]`, `list | show`), which is not a command line."""


def without_code(text: str) -> str:
    """Return *text* without fenced blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each `coterie` command line in fenced blocks (after `$`) and code spans."""
    shell_lines = [line[2:] for _, block in _FENCE.findall(text) for line in block.splitlines() if line[:2] == "$ "]
    spans = [span for span in re.findall(r"`(coterie [^`\n]+)`", _FENCE.sub("", text)) if not _SYNOPSIS.search(span)]
    for line in shell_lines + spans:
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        for command in _split(list(words)):
            if command[:1] == ["coterie"]:
                yield command[1:]


def _split(words: list[str]) -> Iterator[list[str]]:
    """Cut a shell line at pipes, redirections and separators."""
    command: list[str] = []
    for word in words:
        if set(word) <= set("|&;<>()"):
            yield command
            command = []
        else:
            command.append(word)
    yield command


def parse(arguments: list[str]) -> None:
    """Parse a command line as click does, without converting values or running it. Raises `click.UsageError`."""
    command: click.Command = main
    context = click.Context(main, info_name="coterie", **main.context_settings)
    rest = arguments
    while isinstance(command, click.Group):
        _, rest, _ = command.make_parser(context).parse_args(list(rest))
        if not rest:
            return
        name, found, rest = command.resolve_command(context, list(rest))
        assert found is not None, name
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.make_parser(context).parse_args(list(rest))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_command_lines_and_blocks_of_a_document_are_valid(path: Path) -> None:
    text = path.read_text()
    assert [target for target in _LINK.findall(without_code(text)) if is_dead(path, target)] == []
    refused = {}
    for arguments in command_lines(text):
        try:
            parse(arguments)
        except click.BadOptionUsage:  # `run --team` names the option alone
            continue
        except click.UsageError as exc:
            refused[shlex.join(arguments)] = exc.format_message()
    assert refused == {}
    for language, block in _FENCE.findall(text):
        if language == "toml":
            tomllib.loads(block)
        elif language == "yaml":
            yaml.safe_load(block)


def is_dead(path: Path, target: str) -> bool:
    """True if a link in the document *path* is relative and leads nowhere."""
    if re.match(r"[a-z]+:", target):
        return False
    file, _, anchor = target.partition("#")
    linked = (path.parent / file) if file else path
    return not linked.exists() or bool(anchor and anchor not in anchors(linked.read_text()))


def test_readme_is_short_and_lists_every_exit_code() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= README_WORDS
    listed = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", text, re.MULTILINE) for code in row.split(",")}
    assert listed >= {code.value for code in ExitCode}


def test_scenario_and_team_of_the_readme_load(home: Path, tmp_path: Path) -> None:
    blocks = _FENCE.findall((ROOT / "README.md").read_text())
    [team] = [block for language, block in blocks if language == "toml" and "[[members]]" in block]
    [scenario] = [block for language, block in blocks if language == "yaml"]
    (tmp_path / "team.toml").write_text(team)
    (tmp_path / "worker-crash.yaml").write_text(scenario)
    assert [member.name for member in load_team(tmp_path / "team.toml", tmp_path).members] == ["builder", "critic"]
    assert load_scenario(tmp_path / "worker-crash.yaml").name == "worker-crash"


def test_index_of_documents_names_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {target.partition("#")[0] for target in _LINK.findall(index)} >= pages


def mapped_folders() -> list[str]:
    document = (ROOT / "ARCHITECTURE.md").read_text()
    [code_map] = re.findall(r"^## Code map$(.*?)^## ", document, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| (?:\*\*)?`([\w/]+)/`", code_map, re.MULTILINE)


def package_folders() -> set[str]:
    """Return the folders with modules; the links in the kernel are not followed."""
    return {
        module.parent.relative_to(ROOT).as_posix()
        for top in TOPS
        for module in (ROOT / top).rglob("*.py")
        if not any(parent.is_symlink() for parent in module.parents)
    }


def test_every_folder_of_the_code_map_exists() -> None:
    folders = mapped_folders()
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []
    assert len(folders) == len(set(folders))


def test_every_package_folder_is_in_the_code_map() -> None:
    """The five top folders are included, although some hold no modules."""
    assert sorted(package_folders() - set(mapped_folders())) == []
    assert set(TOPS) <= set(mapped_folders())
