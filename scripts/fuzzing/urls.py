"""Hostile URLs, and servers that lie: a model is loaded or refused in words, in bounded time and memory.

Requests go to this machine alone: an audit hook refuses the others.
"""

import argparse
import contextlib
import gzip
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import onnxsurgeon_lite as osl
import stores
from onnxsurgeon_lite import remote
from onnxsurgeon_lite.errors import SurgeonError

if TYPE_CHECKING:
    from __main__ import Attack

_SECONDS, _MEMORY = 15.0, 1 << 29  # bytes that a case may add
_MOST = 1 << 26  # bytes that a server sends
_SCHEMES = (
    "http", "https", "HTTP", "ftp", "file", "local", "memory", "zip", "tar", "dir", "reference", "generic", "github",
    "hf", "s3", "gs", "az", "abfs", "sftp", "ssh", "smb", "git", "data", "jupyter", "libarchive", "blockcache",
    "cached", "simplecache", "dask", "hdfs", "webhdfs", "asynclocal", "tosfs", "what", "a+b", "lakefs",
    "dropbox", "root", "oss",
)  # fmt: skip
_PIECES = (
    "127.0.0.1:9", "127.0.0.1:PORT", "[::1", "[::1]:9", "localhost:99999", "user:word@127.0.0.1:9", "", "..", "/",
    "m.onnx", "%00", "%2e%2e/", "*", "?a=b", "#f", "::http://127.0.0.1:9/m.onnx", "::", " ", "\0", "\n", "é", "\ud800",
    "a" * 300, "$(id)", "{", "//", "@", ":", "~",
)  # fmt: skip
_STATUS = (
    200,
    200,
    200,
    200,
    206,
    206,
    206,
    204,
    301,
    302,
    307,
    304,
    400,
    401,
    403,
    404,
    416,
    500,
    503,
    999,
    100,
)
_HEADERS = (
    "Content-Length: {size}", "Content-Length: {size}", "Content-Length: {size}", "Content-Length: 0",
    "Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: x",
    "Content-Length: 1000000000", "Accept-Ranges: bytes",
    "Accept-Ranges: bytes", "Accept-Ranges: none", "Content-Range: bytes {start}-{stop}/{size}",
    "Content-Range: bytes 0-1/99999999999", "Content-Range: bytes */*", "Content-Range: x", "Content-Encoding: gzip",
    "Content-Encoding: deflate", "Content-Encoding: br", "Transfer-Encoding: chunked", "ETag: \"{random}\"",
    "ETag: same", "Location: /again/m.onnx", "Location: //127.0.0.1:9/m.onnx", "Location: file:///etc/passwd",
    "Location: ftp://x/", "Content-Type: text/html; charset=nope", "X: " + "a" * 9000,
    "Set-Cookie: a=b", "Last-Modified: x",
)  # fmt: skip


class _Server:
    """Answers each request as chance says; honest answers are the model."""

    def __init__(self, model: bytes) -> None:
        self.model, self.draw = model, Random(0)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            connection, _ = self.listening.accept()
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            asked = b""
            while b"\r\n\r\n" not in asked and (piece := connection.recv(1 << 16)):
                asked += piece
            self._answer(connection, asked)

    def _answer(self, connection: socket.socket, asked: bytes) -> None:
        draw, size = self.draw, len(self.model)
        start, stop = 0, size
        for line in asked.lower().split(b"\r\n"):
            if line.startswith(b"range: bytes="):
                first, _, last = line.removeprefix(b"range: bytes=").partition(b"-")
                start, stop = int(first), int(last or size - 1) + 1
        is_part = b"range:" in asked.lower()
        if draw.random() < 0.75:  # honest, so that the next request comes
            kind = "206 Partial Content" if is_part else "200 OK"
            body = self.model[start:stop]
            known = [f"Content-Length: {len(body)}", "Accept-Ranges: bytes"]
            known += [f"Content-Range: bytes {start}-{stop - 1}/{size}"] if is_part else []
        else:
            kind = f"{draw.choice(_STATUS)} x"
            body = self._body(start, stop)
            names = {"size": len(body), "start": start, "stop": stop, "random": draw.random()}
            known = [line.format(**names) for line in draw.sample(_HEADERS, draw.randint(0, 4))]
        head = "\r\n".join([f"HTTP/1.1 {kind}", *known, "Connection: close", "", ""])
        connection.sendall(head.encode())
        if not asked.startswith(b"HEAD"):
            self._send(connection, body)

    def _body(self, start: int, stop: int) -> bytes:
        draw = self.draw
        match draw.randrange(5):
            case 0:
                return self.model[start:stop]
            case 1:
                return self.model
            case 2:
                return draw.randbytes(draw.choice((0, 1, 10, 5000)))
            case 3:
                return gzip.compress(bytes(1 << 24))
            case _:
                return b"5\r\nabcde\r\nffffffffffffffff\r\n"

    def _send(self, connection: socket.socket, body: bytes) -> None:
        how, sent = self.draw.random(), 0
        if how < 0.85:
            connection.sendall(body)
        elif how < 0.9:
            connection.sendall(body[: len(body) // 2])
        elif how < 0.95:
            while sent < _MOST:  # without end
                connection.sendall(bytes(1 << 16))
                sent += 1 << 16
        else:
            for place in range(30):  # drop by drop
                connection.sendall(body[place : place + 1] or b"a")
                time.sleep(0.1)


def _only_here(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what leaves this machine."""
    here = ("127.0.0.1", "localhost", "::1")
    if event == "socket.getaddrinfo" and arguments[0] not in here:
        raise PermissionError("a request to elsewhere")
    if (
        event == "socket.connect"
        and isinstance(arguments[1], tuple)
        and arguments[1][0] not in here
    ):
        raise PermissionError("a request to elsewhere")
    if event in ("subprocess.Popen", "os.exec", "os.system", "os.posix_spawn"):
        raise PermissionError(f"it runs {arguments!r:.100}")


def mutants_of(
    attack: "Attack", models: dict[str, bytes], given: argparse.Namespace
) -> Iterator[None]:
    """Load from a hostile server, from a URL of hostile words, and from a store that lies, in turn."""
    server = _Server(models["plain"])
    stores.register()
    stores.Lying.model = models["plain"]
    sys.addaudithook(_only_here)
    remote._SECONDS, remote._EARNED, remote._PAUSE = 1.0, 10_000, 0.001  # type: ignore[misc]
    remote._LARGEST_COPY = 1 << 20  # type: ignore[misc]
    for number in range(given.first, given.first + given.mutants):
        draw = Random(f"{given.seed}/{number}")
        server.draw = stores.Lying.draw = Random(f"{given.seed}/{number}")
        url = f"http://127.0.0.1:{server.port}/{number}/m.onnx"
        if number % 4 == 1:
            url = f"lying://{number}/m.onnx"
        elif number % 4 == 3:
            words = "".join(draw.choices(_PIECES, k=draw.randint(1, 4)))
            url = f"{draw.choice(_SCHEMES)}://{words}".replace("PORT", str(server.port))
        remote._patience.cache_clear()
        began, before = time.monotonic(), _peak()
        wrong = ""
        try:
            osl.load(url)
            attack.counts["loaded"] += 1
        except SurgeonError:
            attack.counts["refused"] += 1
        except BaseException as error:  # noqa: BLE001  whatever it is, it is not in words
            wrong = f"{type(error).__name__}: {error}"
        if time.monotonic() - began > _SECONDS:
            wrong = wrong or "takes too long"
        if _peak() - before > _MEMORY:
            wrong = wrong or "takes too much memory"
        if wrong:
            attack.keep(f"url-{given.seed}-{number}", b"", wrong, [url])
        yield


def _peak() -> int:
    """Return the most memory that this process took so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
