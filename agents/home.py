"""Where Coterie keeps a user's files."""

import os
from pathlib import Path

HOME_VARIABLE = "COTERIE_HOME"


def home() -> Path:
    """Coterie's directory of this user; it need not exist."""
    return Path(os.environ.get(HOME_VARIABLE) or "~/.coterie").expanduser()
