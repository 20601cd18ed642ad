"""The code map of ARCHITECTURE.md names exactly the folders of the code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOPS = ("agents", "mailbox", "memory", "orchestrator", "scenarios", "src/coterie")


def _mapped_folders() -> list[str]:
    document = (ROOT / "ARCHITECTURE.md").read_text()
    [code_map] = re.findall(r"^## Code map$(.*?)^## ", document, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| (?:\*\*)?`([\w/]+)/`", code_map, re.MULTILINE)


def _package_folders() -> set[str]:
    """Return the folders with modules; the links in the kernel are not followed."""
    return {
        module.parent.relative_to(ROOT).as_posix()
        for top in TOPS
        for module in (ROOT / top).rglob("*.py")
        if not any(parent.is_symlink() for parent in module.parents)
    }


def test_every_folder_of_the_code_map_exists() -> None:
    folders = _mapped_folders()
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []
    assert len(folders) == len(set(folders))


def test_every_package_folder_is_in_the_code_map() -> None:
    """The five top folders are included, although some hold no modules."""
    assert sorted(_package_folders() - set(_mapped_folders())) == []
    assert set(TOPS) <= set(_mapped_folders())
