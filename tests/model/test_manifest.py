"""What a model consists of: digests of its files, binaries that it is compiled to, the file of its checkpoint."""

import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from safetensors.numpy import save_file
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import OutputExistsError, SharedDataError, UsageError
from onnxsurgeon_lite.runtime.session import run_model

RNG = np.random.default_rng(0)
WEIGHTS = {
    "w": RNG.normal(size=(16, 512)).astype(np.float32),
    "v": RNG.normal(size=(512, 16)).astype(np.float32),
    "b": RNG.normal(size=(16,)).astype(np.float32),
}
FEEDS = {"x": np.ones((1, 16), np.float32)}


@pytest.fixture
def path(tmp_path):
    """A model of two large weights and a small one, with its data beside it."""
    graph = onnx.parser.parse_graph("""g (float[1,16] x) => (float[1,16] y) {
        m = MatMul(x, w) n = MatMul(m, v) y = Add(n, b)
    }""")
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in WEIGHTS.items())
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=10), path)
    osl.data.external(path, path, "model.data", force=True)
    return path


def compiled(folder, **attributes):
    """A model that is compiled to a binary beside it."""
    node = helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", **attributes)
    kinds = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy"]
    graph = helper.make_graph([node], "g", kinds[:1], kinds[1:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), folder / "compiled.onnx")
    return folder / "compiled.onnx"


def command(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_a_manifest_has_the_digests_that_sha256sum_checks(path):
    written = osl.data.manifest(path)

    assert written.digests.keys() == {"model.onnx", "model.data"}
    checked = subprocess.run(
        ["sha256sum", "--check", written.place.name], cwd=path.parent, capture_output=True
    )
    assert checked.returncode == 0, checked.stderr
    assert osl.data.manifest(path, check=True).match


def test_a_check_names_what_has_other_bytes_or_is_gone_also_where_the_model_cannot_be_loaded(path):
    assert command("data", "manifest", path).exit_code == 0
    with path.with_name("model.data").open("r+b") as file:
        file.truncate(100)

    changed = command("data", "manifest", path, "--check")
    path.unlink()
    gone = command("data", "manifest", path, "--check", "--json")

    assert changed.exit_code == 1
    assert "'model.data' differs" in changed.stdout
    assert gone.exit_code == 1
    assert json.loads(gone.stdout)["differing"] == ["model.data", "model.onnx"]


def test_a_manifest_is_not_overwritten_and_reads_no_file_outside_of_its_folder(path):
    osl.data.manifest(path)
    assert command("data", "manifest", path).exit_code == 2
    outside = path.parent.parent / "outside"
    outside.write_text("of somebody else")
    digest = subprocess.run(["sha256sum", outside], capture_output=True, text=True).stdout[:64]
    path.with_name("model.onnx.sha256").write_text(f"{digest}  ../outside\n")

    assert osl.data.manifest(path, check=True).differing == ["../outside"]


def test_of_a_folder_all_files_have_digests(path):
    (path.parent / "adapters").mkdir()
    for name in ("genai_config.json", "adapters/a.onnx_adapter"):
        (path.parent / name).write_text("{}")

    written = osl.data.manifest(path.parent)

    assert written.place.name == "SHA256SUMS"
    assert written.digests.keys() == {
        "model.onnx", "model.data", "genai_config.json", "adapters/a.onnx_adapter",
    }  # fmt: skip
    assert osl.data.manifest(path.parent, check=True).match


def test_the_binary_of_a_compiled_model_is_listed_has_a_digest_and_is_not_overwritten(path):
    model = compiled(path.parent, embed_mode=0, ep_cache_context="engine.bin")
    (path.parent / "engine.bin").write_bytes(b"\x00\x01 compiled")

    listed = osl.data.ls(model)

    assert [(each.file, each.bytes, each.dtype) for each in listed] == [
        ("engine.bin", 11, "compiled")
    ]
    assert osl.data.manifest(model).digests.keys() == {"compiled.onnx", "engine.bin"}
    with pytest.raises(SharedDataError, match=r"compiled\.onnx"):
        osl.data.move(path, "engine.bin", force=True)
    assert (path.parent / "engine.bin").read_bytes() == b"\x00\x01 compiled"


@pytest.mark.parametrize("edit", [osl.load, lambda path: osl.rename(path, {"x": "input"}).model])
def test_the_binary_of_a_compiled_model_goes_where_the_model_is_saved(edit, tmp_path):
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "a.bin").write_bytes(b"\x00\x01 compiled")
    model = edit(compiled(tmp_path, embed_mode=0, ep_cache_context="engines/a.bin"))
    other = tmp_path / "other"
    other.mkdir()

    written = osl.save(model, other / "net.onnx")

    assert written.data_files == (other / "engines" / "a.bin",)
    assert (other / "engines" / "a.bin").read_bytes() == b"\x00\x01 compiled"
    assert [stored.file for stored in osl.data.ls(other / "net.onnx")] == ["engines/a.bin"]
    # in its own folder, and over a model that has the same binary, nothing is left to copy
    assert osl.save(model, tmp_path / "net.onnx").sizes.keys() == {tmp_path / "net.onnx"}
    assert osl.save(model, other / "net.onnx").sizes.keys() == {other / "net.onnx"}


def test_the_binary_of_another_model_is_not_overwritten(tmp_path):
    (tmp_path / "engine.bin").write_bytes(b"\x00\x01 compiled")
    model = osl.load(compiled(tmp_path, embed_mode=0, ep_cache_context="engine.bin"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "engine.bin").write_bytes(b"of somebody else")

    with pytest.raises(OutputExistsError, match=r"engine\.bin"):
        osl.save(model, other / "net.onnx")

    assert [file.name for file in other.iterdir()] == ["engine.bin"]


@pytest.mark.parametrize("attributes", [{}, {"embed_mode": 1}])
def test_a_binary_inside_the_model_is_no_file(attributes, tmp_path):
    model = compiled(tmp_path, ep_cache_context="\0binary", **attributes)

    assert not osl.data.ls(model)
    assert osl.data.manifest(model).digests.keys() == {"compiled.onnx"}


def test_data_moves_into_a_file_for_each_tensor(path):
    before = run_model(osl.load(path), FEEDS)

    done = command("data", "move", path, "parts/w.data", "--max-shard", 1, "--min-size", "1KB")

    assert done.exit_code == 0, done.output
    files = {stored.name: stored.file for stored in osl.data.ls(path)}
    assert files == {"w": "parts/w-00001-of-00002.data", "v": "parts/w-00002-of-00002.data"}
    assert not path.with_name("model.data").exists()
    assert np.array_equal(run_model(osl.load(path), FEEDS)["y"], before["y"])


@pytest.mark.parametrize("name", ["net.safetensors", "net.npz"])
def test_a_model_refers_to_the_file_of_its_checkpoint_and_nothing_is_copied(name, path):
    before = run_model(osl.load(path), FEEDS)
    held = {"layer.v": WEIGHTS["v"], "other": WEIGHTS["w"] + 1, "layer.w": WEIGHTS["w"]}
    net = path.with_name(name)
    save_file(held, net) if net.suffix == ".safetensors" else np.savez(net, **held)

    done = osl.data.link(path, net, path.with_name("linked.onnx"))

    assert done.notes == (f"2 of 2 large initializers are in {name!r}",)
    files = {stored.name: stored.file for stored in osl.data.ls(done.written.path)}
    assert files == {"w": name, "v": name}
    assert done.written.path.stat().st_size < 2000
    assert np.array_equal(run_model(osl.load(done.written.path), FEEDS)["y"], before["y"])


def test_what_the_checkpoint_lacks_stays_where_it_is(path):
    before = run_model(osl.load(path), FEEDS)
    save_file({"v": WEIGHTS["v"]}, path.with_name("net.safetensors"))

    done = command(
        "data", "link", path, path.with_name("net.safetensors"), "-o", path.with_name("l.onnx")
    )

    assert done.exit_code == 0, done.output
    assert "1 of 2 large initializers" in done.stderr
    files = {stored.name: stored.file for stored in osl.data.ls(path.with_name("l.onnx"))}
    assert files == {"w": "model.data", "v": "net.safetensors"}
    assert np.array_equal(run_model(osl.load(path.with_name("l.onnx")), FEEDS)["y"], before["y"])


def test_a_checkpoint_of_another_network_or_in_another_folder_is_refused(path, tmp_path_factory):
    save_file({"v": WEIGHTS["v"] + 1}, path.with_name("net.safetensors"))
    with pytest.raises(UsageError, match="has the bytes of no initializer"):
        osl.data.link(path, path.with_name("net.safetensors"), path.with_name("linked.onnx"))
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "linked.onnx"
    with pytest.raises(UsageError, match="in its folder or below"):
        osl.data.link(path, path.with_name("net.safetensors"), elsewhere)
