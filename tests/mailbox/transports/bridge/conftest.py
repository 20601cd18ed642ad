from pathlib import Path

import pytest

from tests.mailbox.transports.bridge.two_sessions import Two


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)
