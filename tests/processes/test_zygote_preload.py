"""Objects that a zygote creates before it forks: present and shared in agents, without side effects."""

import os
import threading
from pathlib import Path

import msgspec
import pytest
import trio

from coterie.agents.loop.model.client_warmup import ssl_context, warm_up_client
from coterie.orchestrator.processes.process_starters import AGENT_PRELOADS, open_zygote_starter
from tests.descriptors import count_descriptors
from tests.processes import child_entries
from tests.processes.loopback_call import call_loopback_model
from tests.processes.starter_root import make_start

ROOT = Path(__file__).parents[2]


@pytest.fixture
def proxy_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment that sends all HTTP to a port without a listener."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)


def test_rehearsal_closes_everything() -> None:
    descriptors, threads = count_descriptors(), set(threading.enumerate())
    warm_up_client()
    assert count_descriptors() == descriptors
    assert set(threading.enumerate()) <= threads


@pytest.mark.usefixtures("proxy_nowhere")
async def test_a_server_on_this_machine_is_never_asked_through_a_proxy() -> None:
    with trio.fail_after(10):
        await call_loopback_model()


def test_an_ssl_context_is_made_once_for_the_certificates_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    context = ssl_context(is_loopback=False)
    assert ssl_context(is_loopback=False) is context
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path.parent))
    assert ssl_context(is_loopback=False) is not context
    assert ssl_context(is_loopback=True) is ssl_context(is_loopback=True)


@pytest.mark.slow
async def test_an_agent_imports_nothing_and_starts_no_thread_until_its_first_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    reader, writer = os.pipe()
    with trio.fail_after(30):
        async with (
            trio.lowlevel.FdStream(reader) as answer,
            open_zygote_starter([*AGENT_PRELOADS, child_entries.__name__]) as warm,
        ):
            child = await warm.start(make_start("call_first"), [writer])
            os.close(writer)
            told = msgspec.json.decode(b"".join([chunk async for chunk in answer]))
            assert await child.wait() == 0
    assert told == {"is_agent": True, "imported": [], "threads": 1, "contexts": 1}
