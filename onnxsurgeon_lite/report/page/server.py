"""A page that asks for tensors as they are looked at, from a server for this machine alone.

Whoever may ask knows the token of the address, and means this server: other pages of the browser do neither.
"""

import json
import secrets
from collections.abc import Callable
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.names import is_count
from onnxsurgeon_lite.report import results
from onnxsurgeon_lite.report.page.data import TensorPart

_HOST = "127.0.0.1"
_PATIENCE = 60  # seconds that a request may take to arrive
_TENSORS = "tensors/"

Look = Callable[[int], list[TensorPart]]


class PageServer(ThreadingHTTPServer):
    """Serves one page, and the tensors of a node by its number.

    Attributes:
        address: what to open.
    """

    daemon_threads = True

    def __init__(self, html: bytes, look: Look) -> None:
        """Start to serve, in a thread of its own, at a port that is free."""
        super().__init__((_HOST, 0), _Answer)
        self.html = html
        self.look = look
        self.lock = Lock()
        self.token = secrets.token_urlsafe(32)
        self.host = f"{_HOST}:{self.server_port}"
        self.address = f"http://{self.host}/{self.token}/"
        Thread(target=self.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Serve no more."""
        self.shutdown()
        self.server_close()

    def tensors(self, node: int) -> bytes:
        """Return what is to be seen of a node, or why nothing is."""
        with self.lock:  # one session, one question at a time
            try:
                found = {"tensors": results.data(self.look(node)), "error": ""}
            except SurgeonError as error:
                found = {"tensors": [], "error": error.message}
        return json.dumps(found, allow_nan=False).encode()


class _Answer(BaseHTTPRequestHandler):
    """Answers one request."""

    server: PageServer
    timeout = _PATIENCE
    server_version = "onnxdbg"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer the page or a node's tensors; nothing else is there."""
        if self.headers.get("Host") != self.server.host:  # a name that was bound to this machine
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        # /TOKEN/ is the page, /TOKEN/tensors/12 what node 12 makes
        token, _, wanted = self.path.removeprefix("/").partition("/")
        node = wanted.removeprefix(_TENSORS)
        if not compare_digest(token.encode(), self.server.token.encode()):
            self.send_error(HTTPStatus.NOT_FOUND)
        elif not wanted:
            self._send("text/html; charset=utf-8", self.server.html)
        elif wanted.startswith(_TENSORS) and is_count(node):
            self._send("application/json", self.server.tensors(int(node)))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *said: object) -> None:
        """Say nothing of a request."""
