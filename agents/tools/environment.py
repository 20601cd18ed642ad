"""What the programs that are started for an agent may know."""

import os
from collections.abc import Mapping

SECRET_PREFIX = "ANTHROPIC_"  # noqa: S105 - how names begin, not a secret
SECRETS = frozenset({"COTERIE_CONTROL_TOKEN"})


def command_environment(besides: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program: everything but the keys to the model and to the session, and *besides*."""
    told = {**os.environ, **besides}
    return {name: value for name, value in told.items() if not name.startswith(SECRET_PREFIX) and name not in SECRETS}
