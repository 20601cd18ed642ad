"""Web server on loopback in a thread."""

import gzip
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import attrs


@attrs.define
class Site:
    """Pages of a server, and its log of requests."""

    pages: dict[str, tuple[int, dict[str, str], bytes]] = attrs.field(factory=dict)
    asked: list[tuple[str, str]] = attrs.field(factory=list)
    """Host and path of each request."""
    headers: list[dict[str, str]] = attrs.field(factory=list)
    port: int = 0
    hang: threading.Event = attrs.field(factory=threading.Event)
    """Ends the wait of requests for `/hang`."""

    def page(self, path: str, body: str | bytes, kind: str = "text/html; charset=utf-8", *, status: int = 200) -> None:
        content = body if isinstance(body, bytes) else body.encode()
        self.pages[path] = (status, {"Content-Type": kind} if kind else {}, content)

    def redirect(self, path: str, target: str, status: int = 302) -> None:
        self.pages[path] = (status, {"Location": target}, b"")

    def packed(self, path: str, body: bytes) -> None:
        self.pages[path] = (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, gzip.compress(body))


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append((self.headers.get("Host", ""), self.path))
            site.headers.append(dict(self.headers.items()))
            if self.path == "/hang":
                site.hang.wait(60)
            status, headers, body = site.pages.get(self.path, (404, {"Content-Type": "text/plain"}, b"not here"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Log nothing."""

    return Handler


@contextmanager
def open_site(context: ssl.SSLContext | None = None) -> Iterator[Site]:
    """Serve a site until the block ends."""
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    site.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        site.hang.set()
        server.shutdown()
        thread.join()
        server.server_close()
