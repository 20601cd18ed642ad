"""What commands have no business with: keys, passwords, and all that Coterie keeps of this user."""

import os
from collections.abc import Iterator
from pathlib import Path

from coterie.agents.home import home
from coterie.mailbox.bridge.place import RUNTIME_VARIABLE, bridge_directory

SECRETS = (
    *(
        ".ssh",
        ".gnupg",
        ".aws",
        ".azure",
        ".kube",
        ".docker",
        ".oci",
        ".config/gcloud",
        ".config/gh",
        ".config/glab-cli",
    ),
    *(
        ".netrc",
        ".git-credentials",
        ".config/git/credentials",
        ".pgpass",
        ".my.cnf",
        ".npmrc",
        ".yarnrc.yml",
        ".pypirc",
    ),
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".config/pip/pip.conf", ".terraform.d"),
    *(".vault-token", ".password-store", ".local/share/keyrings", ".config/op", ".config/Bitwarden CLI"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
    *(".bash_history", ".zsh_history", ".python_history", ".psql_history", ".claude.json", ".claude/.credentials.json"),
)
"""Below the user's home directory."""


def hidden_places() -> Iterator[Path]:
    """Where keys and the files of sessions are, and sockets by which services of this user can be asked."""
    user = Path.home()
    yield from (user / name for name in SECRETS)
    yield home()
    yield bridge_directory()
    if runtime := os.environ.get(RUNTIME_VARIABLE):
        yield Path(runtime)
