"""Serve a bundle's page to a browser of this machine, or of a phone at its cable.

    python serve.py [--port N]

The file needs Python 3.8 and imports nothing else.
"""

import sys

# Python looks for modules beside a program first. What lies here by chance, such as
# http.py, must not be imported in their place.
if __name__ == "__main__" and not (
    sys.flags.isolated or getattr(sys.flags, "safe_path", False)
):
    del sys.path[0]

import argparse
import errno
import os
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".wasm": "application/wasm",
}
"""The type of each file that a page is made of."""

HEADERS = {
    # Both are needed for threads in WebAssembly.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    # The page loads what this server has, and nothing else.
    "Content-Security-Policy": "default-src 'none'; connect-src 'self' blob:; "
    "script-src 'self' 'wasm-unsafe-eval' blob:; worker-src 'self' blob:",
    "Cache-Control": "no-store",
}
"""What the server of a page sends with each file."""

PORT = 8000
_MOST = 65535


HERE = {"localhost", "127.0.0.1", "[::1]"}
"""Names of this machine. A page elsewhere may give its own name this address, and then
a browser lets it read what is served; it cannot change the name that it asks for."""


class _Handler(SimpleHTTPRequestHandler):
    extensions_map = {**KINDS, "": "application/octet-stream"}  # noqa: RUF012  # as the class has it

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def parse_request(self) -> bool:
        """Refuse a request that names another machine."""
        if not super().parse_request():
            return False
        host, _, port = self.headers.get("Host", "").rpartition(":")
        if (host if port.isdecimal() else port) in HERE:
            return True
        self.send_error(421, "open this page as http://localhost")
        return False

    def end_headers(self) -> None:
        """Add what the page needs."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # On Windows two servers would share a port in silence.
    allow_reuse_address = os.name == "posix"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing of a browser that ended its request."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() and len(text) <= len(str(_MOST)) else -1
    if not 0 <= port <= _MOST:
        msg = f"{text!r} is no port; give a number from 0 to {_MOST}"
        raise argparse.ArgumentTypeError(msg)
    return port


def main() -> None:
    """Serve the folder of this file until somebody presses Ctrl-C."""
    parser = argparse.ArgumentParser(description="Serve the page of this bundle.")
    parser.add_argument(
        "--port",
        type=_port,
        default=PORT,
        help=f"a port of this machine; {PORT} when left out, and 0 for a free one",
    )
    asked = parser.parse_args()
    handler = partial(_Handler, directory=str(Path(__file__).resolve().parent))
    try:
        server = _Server(("127.0.0.1", asked.port), handler)
    except OSError as error:
        why = error.strerror
        if error.errno == errno.EADDRINUSE:
            why = "another program uses it"
        sys.exit(
            f"Port {asked.port} cannot be served ({why}); give another with --port."
        )
    port = server.server_address[1]
    sys.stdout.write(f"open http://localhost:{port}/ in the browser; Ctrl-C ends\n")
    sys.stdout.flush()
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
