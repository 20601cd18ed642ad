"""Embedded server in a separate process with a script of one reply, for the duration of a benchmark."""

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.fixed_reply_server import TEXT
from coterie.orchestrator.processes.api_server_process import ApiServerHandle, open_api_server


@asynccontextmanager
async def open_scripted_server(**reply: Any) -> AsyncIterator[ApiServerHandle]:
    """Start a server that always sends the text of the fixed reply; *reply* adds options to it."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "script.yaml"
        # JSON is YAML.
        script.write_text(json.dumps({"default": [{"text": TEXT, "times": "always", **reply}]}))
        async with open_api_server(script) as server:
            yield server
