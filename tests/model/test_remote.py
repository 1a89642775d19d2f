"""Models and references at URLs: only what is needed is moved, broken connections are tried again, changes are told."""

import contextlib
import http.server
import io
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite import remote
from onnxsurgeon_lite.errors import (
    ModelFileError,
    OutputExistsError,
    SourceChangedError,
    SurgeonError,
    UsageError,
)
from onnxsurgeon_lite.remote import RangeBuffer, RangeFile, Remote, placed
from onnxsurgeon_lite.tensors.references import Samples, open_references

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

GB = 1 << 30


@dataclass
class Web:
    """A server of a folder that counts the bytes it sends.

    Attributes:
        ranges: it honors them. breaks: how many answers end in the middle. versions: path -> what its ETag is.
    """

    folder: Path
    url: str = ""
    ranges: bool = True
    breaks: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    sent: int = 0
    asked: int = 0


@pytest.fixture
def web(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "_PAUSE", 0.01)
    found = Web(tmp_path / "web")
    found.folder.mkdir()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self._answer(body=False)

        def do_GET(self):
            self._answer(body=True)

        def _answer(self, body):
            path = found.folder / self.path.lstrip("/")
            if not path.is_file():
                self.send_error(404)
                return
            size = path.stat().st_size
            start, stop = 0, size
            asked = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if asked and found.ranges:
                start, stop = int(asked[1]), min(size, int(asked[2]) + 1)
            self.send_response(206 if asked and found.ranges else 200)
            self.send_header("Content-Length", str(stop - start))
            if asked and found.ranges:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            self.send_header("ETag", found.versions.get(path.name, "1"))
            self.end_headers()
            if not body:
                return
            found.asked += 1
            with path.open("rb") as file:
                file.seek(start)
                data = file.read(stop - start)
            if found.breaks:
                found.breaks -= 1
                data = data[: len(data) // 2]
                self.close_connection = True
            found.sent += len(data)
            with contextlib.suppress(OSError):
                self.wfile.write(data)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


def large(folder: Path, size: int) -> None:
    """Write a model of two layers whose weights are a sparse file: the first of 4 KB, the second of `size` bytes."""
    rows = size // 4 // 1024
    weights = []
    for name, dims, offset in (("small", [32, 32], 0), ("big", [1024, rows], 4096)):
        tensor = TensorProto(name=name, dims=dims, data_type=1, data_location=TensorProto.EXTERNAL)
        length = 4 * dims[0] * dims[1]
        for key, value in (("location", "large.data"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
    nodes = [
        helper.make_node("MatMul", ["x", "small"], ["h"]),
        helper.make_node("Concat", ["h"] * 32, ["wide"], axis=1),
        helper.make_node("MatMul", ["wide", "big"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    inputs, outputs = [value("x", 1, [1, 32])], [value("y", 1, [1, rows])]
    graph = helper.make_graph(nodes, "large", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (folder / "large.onnx").write_bytes(model.SerializeToString())
    with (folder / "large.data").open("wb") as file:
        file.write(np.eye(32, dtype=np.float32).tobytes())
        file.truncate(4096 + size)


def test_of_a_huge_model_only_what_is_extracted_is_moved(web, tmp_path):
    large(web.folder, 100 * GB)

    part = osl.extract(f"{web.url}/large.onnx", outputs="h")
    osl.save(part.model, tmp_path / "part.onnx")

    assert web.sent < 64_000
    x = np.arange(32, dtype=np.float32)[None]
    assert osl.run(tmp_path / "part.onnx", {"x": x})["h"].tolist() == x.tolist()


def test_embedded_weights_stay_where_they_are(web):
    source = onnx.load(FIXTURES / "whole_model.onnx")
    padding = np.random.default_rng(0).standard_normal(2_000_000).astype(np.float32)
    source.graph.initializer.insert(0, onnx.numpy_helper.from_array(padding, "padding"))
    onnx.save(source, web.folder / "model.onnx")

    model = osl.load(f"{web.url}/model.onnx")

    assert web.sent < 100_000
    assert model.array(model.proto.graph.initializer[0]).tolist() == padding.tolist()
    assert web.sent < 8_200_000
    local = osl.load(FIXTURES / "whole_model.onnx")
    assert osl.run(model, seed=1)["31"].tolist() == osl.run(local, seed=1)["31"].tolist()


def test_a_server_without_ranges_is_read_once(web):
    web.ranges = False
    large(web.folder, 1 << 20)

    model = osl.load(f"{web.url}/large.onnx")
    arrays = [model.array(tensor) for tensor in model.proto.graph.initializer]

    assert arrays[0].tolist() == np.eye(32).tolist()
    assert not arrays[1].any()
    assert web.sent < 4 * (1 << 20)


def test_a_broken_connection_is_tried_again(web):
    large(web.folder, 1 << 20)
    model = osl.load(f"{web.url}/large.onnx")
    web.breaks = 3

    assert model.array(model.proto.graph.initializer[0]).tolist() == np.eye(32).tolist()
    assert web.breaks == 0


def test_a_connection_that_always_breaks_is_told(web):
    large(web.folder, 1 << 20)
    web.breaks = 1000

    with pytest.raises(ModelFileError, match="5 tries"):
        osl.load(f"{web.url}/large.onnx")


def test_a_changed_object_is_an_error(web):
    large(web.folder, 1 << 20)
    model = osl.load(f"{web.url}/large.onnx")
    web.versions["large.data"] = "2"

    with pytest.raises(SourceChangedError, match="changed"):
        model.array(model.proto.graph.initializer[0])


def test_what_is_not_there_is_told_as_of_a_file(web):
    with pytest.raises(ModelFileError, match="No such file"):
        osl.load(f"{web.url}/nothing.onnx")
    with pytest.raises(UsageError, match="Protocol not known"):
        osl.load("nowhere://bucket/model.onnx")


def test_a_url_stays_one_through_a_path_and_a_local_name_is_no_url(tmp_path, monkeypatch):
    assert str(placed(Path("s3://bucket/a/b.onnx"))) == "s3://bucket/a/b.onnx"
    assert str(placed("https://host/x") / "y") == "https://host/x/y"
    assert not isinstance(placed("C:/models/a.onnx"), Remote)
    monkeypatch.chdir(tmp_path)
    Path("ab:").mkdir()
    Path("ab:/c").touch()
    assert not isinstance(placed("ab:/c"), Remote)


def test_bytes_by_their_places_are_those_of_the_file(web):
    data = np.random.default_rng(0).integers(0, 256, 50_000).astype(np.uint8).tobytes()
    (web.folder / "bytes").write_bytes(data)
    buffer = RangeBuffer(RangeFile(Remote(f"{web.url}/bytes")))

    rng = np.random.default_rng(1)
    for _ in range(300):
        start = int(rng.integers(0, 50_000))
        stop = min(50_000, start + int(rng.integers(0, 3_000)))
        assert buffer[start] == data[start]
        assert buffer[start:stop] == data[start:stop]
    assert web.sent <= 50_000


@pytest.fixture(scope="module")
def bucket():
    """An S3 server on this machine."""
    server = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    import fsspec

    running = server.ThreadedMotoServer(port=0)
    running.start()
    host, port = running.get_host_and_port()
    options = {"endpoint_url": f"http://{host}:{port}", "key": "key", "secret": "secret"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fsspec.config.conf, "s3", options)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3").mkdir("models")
        yield "s3://models"
    running.stop()


def test_models_references_and_outputs_lie_in_a_bucket(bucket):
    import fsspec

    store = fsspec.filesystem("s3")
    for name in (
        "external.onnx",
        "external.data",
        "whole_model.onnx",
        "references/whole_model.npz",
    ):
        if (FIXTURES / name).exists():
            store.put_file(str(FIXTURES / name), f"models/{Path(name).name}")

    assert osl.load(f"{bucket}/whole_model.onnx").proto.graph.name == "whole_model"
    assert osl.compare_sets(f"{bucket}/whole_model.onnx", f"{bucket}/whole_model.npz").match
    osl.record(f"{bucket}/whole_model.onnx", f"{bucket}/refs", seed=1)
    assert osl.compare_sets(f"{bucket}/whole_model.onnx", f"{bucket}/refs").match
    model = osl.load(f"{bucket}/external.onnx")
    osl.save(model, f"{bucket}/copies/copy.onnx")
    copy = osl.load(f"{bucket}/copies/copy.onnx")
    for one, other in zip(model.proto.graph.initializer, copy.proto.graph.initializer, strict=True):
        assert np.array_equal(model.array(one), copy.array(other))

    store.put_file(str(FIXTURES / "whole_model.onnx"), "models/copies/copy.onnx")
    with pytest.raises(SourceChangedError):
        osl.save(copy, f"{bucket}/other.onnx")


def test_samples_lie_at_a_url():
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    osl.save_tensors("memory://rows/x.safetensors", {"x": rows})
    osl.save_tensors("memory://rows/own", {"x": rows})

    assert open_references("memory://rows/own").read("x").tolist() == rows.tolist()
    samples = Samples("memory://rows/x.safetensors", ["x"], [], {"x": (2, 1)})
    assert [sample.read("x").tolist() for sample in samples] == rows[:, None].tolist()
    with pytest.raises(OutputExistsError):
        osl.record(FIXTURES / "whole_model.onnx", "memory://rows/own", force=False)


@pytest.fixture
def hostile(monkeypatch):
    """A server that answers as the first part of the path says."""
    monkeypatch.setattr(remote, "_SECONDS", 0.5)
    monkeypatch.setattr(remote, "_LARGEST_COPY", 1 << 20)
    monkeypatch.setattr(remote, "_PAUSE", 0.01)
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            how = self.path.split("/")[1]
            if how == "silent":
                over.wait(20)
                return
            part = how == "part" and self.command == "GET"
            self.send_response(206 if part else 200)
            if how == "drips" or (how == "part" and not part):
                self.send_header("Content-Length", "1000")
                self.send_header("Accept-Ranges", "bytes")
            self.end_headers()
            with contextlib.suppress(OSError):
                if how in ("endless", "part"):
                    while self.command == "GET" and not over.is_set():
                        self.wfile.write(b"\n\1a" * 10_000)
                while how == "drips" and self.command == "GET" and not over.wait(0.1):
                    self.wfile.write(b"a")

        do_HEAD = do_GET  # noqa: N815  as the server calls it

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    over.set()
    server.shutdown()
    server.server_close()
    thread.join()
    remote._patience.cache_clear()


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("silent", "too little came in"),
        ("drips", "too little came in"),
        ("endless", "it sends more than 1048576 bytes"),
        ("part", "it sends more than 4194304 bytes at once"),
    ],
)
def test_a_server_that_never_ends_is_left(how, problem, hostile):
    with pytest.raises(ModelFileError, match=problem):
        osl.load(f"{hostile}/{how}/model.onnx")


def test_what_a_server_sends_at_once_does_not_let_it_wait_for_hours():
    patience = remote._Patience()

    patience.earn(1 << 30)

    assert patience._left <= remote._SECONDS


def test_a_store_that_never_says_hello_is_left(hostile):
    with pytest.raises(SurgeonError, match="too little came in"):
        osl.load(f"{hostile.replace('http', 'ftp')}/m.onnx")


def test_a_copy_needs_room_on_the_disk():
    with pytest.raises(OSError, match="it sends more than"):
        remote._Copy(Remote("http://a/b"), 1 << 50)


def test_a_timeout_holds_for_what_is_fetched(hostile, monkeypatch):
    monkeypatch.setattr(remote, "_SECONDS", 60)

    with pytest.raises(ModelFileError, match="too little came in"):
        osl.check(f"{hostile}/silent/model.onnx", timeout=0.2)


class Store(fsspec.AbstractFileSystem):
    """A store that answers otherwise than it should.

    Attributes:
        told: what it says of a file. given: what it gives for 10 bytes. slow: seconds that it lists or writes.
    """

    cachable = False
    told: ClassVar = {}
    given: ClassVar = b""
    slow = 0.0

    def info(self, path, **_):
        return {"name": path, **self.told}

    def _open(self, path, **_):
        found = io.BytesIO()
        found.read = lambda _: self.given
        return found

    def glob(self, path, **_):
        time.sleep(self.slow)
        return []

    def put_file(self, lpath, rpath, **_):
        time.sleep(self.slow)


@pytest.fixture
def store(monkeypatch):
    fsspec.register_implementation("lying", Store, clobber=True)
    monkeypatch.setattr(remote, "_PAUSE", 0.001)
    monkeypatch.setattr(remote, "_SECONDS", 0.5)
    yield monkeypatch
    remote._patience.cache_clear()


@pytest.mark.parametrize(
    ("told", "given", "problem"),
    [
        ({"size": "7"}, b"", "its size is '7'"),
        ({"size": 10}, "text of text", "5 tries"),
        ({"size": 10}, None, "gave no bytes"),
        ({"size": 10}, b"\0" * 5000, "not a readable ONNX model"),
        ({"size": -1, "type": "file"}, b"", "negative"),
    ],
)
def test_a_store_that_lies_is_told(told, given, problem, store):
    store.setattr(Store, "told", told)
    store.setattr(Store, "given", given)

    with pytest.raises(SurgeonError, match=problem):
        osl.load("lying://a/m.onnx")


def test_a_store_that_lists_for_ever_is_left(store):
    store.setattr(Store, "slow", 5)

    with pytest.raises(OSError, match="too little came in"):
        list(Remote("lying://a").glob("*.npy"))


def test_an_upload_may_take_the_time_that_its_size_needs(store, tmp_path):
    store.setattr(Store, "slow", 1)
    (tmp_path / "m").write_bytes(bytes(100_000))

    Remote("lying://a/m").upload(tmp_path / "m")


@pytest.mark.parametrize(
    "url", ["dask://m.onnx", "zip://m.onnx", "reference://m.onnx", "dir://x/m.onnx", "memory://m.onnx", "generic://m", "what://m"]
)  # fmt: skip
def test_a_store_that_cannot_be_opened_is_named(url):
    with pytest.raises((ModelFileError, UsageError), match=re.escape(f"cannot read {url!r}")):
        osl.load(url)
