"""Serve the page of one session on the loopback address, and carry its frames.

The page asks for the next frame, and posts its answers. It also keeps one request open,
so the end of the page is seen at once, whatever ended it.
"""

from __future__ import annotations

import os
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from harness.plugins.browser.serve import HEADERS, KINDS

PAGE: Final = Path(__file__).parent / "page"
_BLOCK_BYTES: Final = 1 << 20


class PageServer:
    """Serves one page, its runtime and a session's files, each by a name.

    Attributes:
        url: Address of the page. It has a secret, so that no other program of this
            machine is answered.
        answers: File descriptor of what the page posts. It ends when the page does.

    """

    def __init__(self, folders: Mapping[str, Path], files: Mapping[str, Path]) -> None:
        self._folders = {"page": PAGE, **folders}
        self._files = dict(files)
        self._frames: queue.Queue[list[Any] | None] = queue.Queue()
        self.answers, self._into = os.pipe()
        self._ended = threading.Lock()
        self._is_open = True
        self.secret = secrets.token_urlsafe(24)
        # Port 0 is one that nobody uses.
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        port = self._server.server_address[1]
        self._host = f"127.0.0.1:{port}"
        self.url = f"http://{self._host}/{self.secret}/page/live.html"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def send(self, parts: Iterable[Any]) -> None:
        """Keep a frame until the page asks for it."""
        self._frames.put(list(parts))

    def close(self) -> None:
        """End the server, and its page with it."""
        self._frames.put(None)
        self._server.shutdown()
        self._server.server_close()
        os.close(self.answers)  # a part of an answer that is being written is dropped
        self.page_ended()

    def page_ended(self) -> None:
        """End what the page posts."""
        with self._ended:
            if self._is_open:
                self._is_open = False
                os.close(self._into)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

            def do_GET(self) -> None:
                self._answer(server.get)

            def do_POST(self) -> None:
                self._answer(server.post)

            def _answer(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
                try:
                    answer(self)
                except OSError:  # half an answer must not look like one that goes on
                    self.close_connection = True

        return Handler

    def get(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a request for a file, for the next frame, or for the page's life."""
        what, name = self._asked(request)
        if what == "next":
            parts = self._frames.get()
            if parts is None:
                self._head(request, HTTPStatus.NO_CONTENT, 0)
                return
            views = [memoryview(part).cast("B") for part in parts]
            self._head(request, HTTPStatus.OK, sum(map(len, views)))
            for view in views:
                request.wfile.write(view)
        elif what == "alive":
            self._head(request, HTTPStatus.OK, 1)
            request.wfile.flush()
            # Nothing more is sent, so this returns when the page has ended.
            with suppress(OSError):
                request.rfile.read(1)
            self.page_ended()
        elif path := self._file(what, name):
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._head(request, HTTPStatus.OK, size, KINDS.get(path.suffix, ""))
                while block := file.read(_BLOCK_BYTES):
                    request.wfile.write(block)
        else:
            self._head(request, HTTPStatus.NOT_FOUND, 0)

    def post(self, request: BaseHTTPRequestHandler) -> None:
        """Pass on a part of an answer."""
        what, _ = self._asked(request)
        size = int(request.headers.get("Content-Length", 0))
        if what != "told":
            self._head(request, HTTPStatus.NOT_FOUND, 0)
            return
        while size > 0:
            block = request.rfile.read(min(size, _BLOCK_BYTES))
            if not block:
                return
            size -= len(block)
            view = memoryview(block)
            while view:
                with self._ended:
                    if not self._is_open:  # its number may be another file's by now
                        return
                    view = view[os.write(self._into, view) :]
        self._head(request, HTTPStatus.NO_CONTENT, 0)

    def _asked(self, request: BaseHTTPRequestHandler) -> tuple[str, str]:
        """Return what a request asks for: a word and a name; empty for a stranger."""
        path = unquote(request.path.partition("?")[0])
        secret, _, rest = path.lstrip("/").partition("/")
        known = secrets.compare_digest(secret.encode(), self.secret.encode())
        if not known or request.headers.get("Host") != self._host:
            return "", ""
        what, _, name = rest.partition("/")
        return what, name

    def _file(self, what: str, name: str) -> Path | None:
        """Return a file: one of the session's, or one in a folder, by a plain name."""
        if what == "model":
            return self._files.get(name)
        folder = self._folders.get(what)
        if folder is None or name in {"", ".", ".."} or "/" in name or "\\" in name:
            return None
        path = folder / name
        return path if path.is_file() else None

    def _head(
        self, request: BaseHTTPRequestHandler, status: int, size: int, kind: str = ""
    ) -> None:
        request.send_response(status)
        for name, value in HEADERS.items():
            request.send_header(name, value)
        request.send_header("Content-Type", kind or "application/octet-stream")
        request.send_header("Content-Length", str(size))
        request.end_headers()
