"""A language model package of 4 GB, of which a sparse file holds nothing: commands that need no numbers read none."""

import subprocess
import sys
from importlib.util import find_spec

import onnx
import pytest
from onnx import TensorProto, helper

WIDTH, WIDE, BLOCK, LAYERS = 4096, 65536, 32, 26
LIMIT = 300 << 20  # bytes that a process may take
MEASURE = (
    "import resource, subprocess, sys\n"
    "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Products with int4 weights, in turns to the wide size and back; all data is in one file."""
    path = tmp_path_factory.mktemp("large") / "model.onnx"
    nodes, tensors, end = [], [], 0
    for layer in range(LAYERS):
        k, n = (WIDTH, WIDE) if layer % 2 == 0 else (WIDE, WIDTH)
        parts = {
            "Q4": (TensorProto.UINT8, [n, k // BLOCK, BLOCK // 2], n * k // 2),
            "scales": (TensorProto.FLOAT, [n, k // BLOCK], 4 * n * k // BLOCK),
        }
        for part, (kind, dims, size) in parts.items():
            tensor = TensorProto(name=f"w{layer}_{part}", data_type=kind, dims=dims)
            tensor.data_location = TensorProto.EXTERNAL
            where = {"location": "model.data", "offset": end, "length": size}
            for key, value in where.items():
                tensor.external_data.add(key=key, value=str(value))
            tensors.append(tensor)
            end += size
        sizes = {"K": k, "N": n, "bits": 4, "block_size": BLOCK}
        inputs = [f"x{layer}", f"w{layer}_Q4", f"w{layer}_scales"]
        nodes.append(
            helper.make_node(
                "MatMulNBits", inputs, [f"x{layer + 1}"], domain="com.microsoft", **sizes
            )
        )
    kinds = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", WIDTH])
        for n in ("x0", f"x{LAYERS}")
    ]
    # as of a mask: operators that opset 23 defines anew
    nodes += [
        helper.make_node("Shape", ["x0"], ["size"]),
        helper.make_node("Cast", ["size"], ["small"], to=TensorProto.INT32),
    ]
    kinds.append(helper.make_tensor_value_info("small", TensorProto.INT32, [2]))
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    with path.with_name("model.data").open("wb") as file:
        file.truncate(end)
    assert end > 4 << 30
    return path


@pytest.mark.skipif(find_spec("resource") is None, reason="the system does not tell")
@pytest.mark.parametrize(
    "words",
    [
        "inspect model.onnx",
        "check model.onnx",
        "edit infer model.onnx -o typed.onnx --dry-run",
        "edit standardize model.onnx -o standard.onnx --dry-run",
        "edit fuse model.onnx -o fused.onnx --dry-run",
        "edit opset model.onnx 23 -o newer.onnx --dry-run",
    ],
)
def test_a_command_that_needs_no_numbers_stays_small(words, package):
    command = [sys.executable, "-m", "onnxsurgeon_lite", *words.split()]

    # started by a small process: the memory of the one that starts it counts as its own until then
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, *command],
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=True,
    )

    unit = 1 if sys.platform == "darwin" else 1024
    assert int(measured.stdout) * unit < LIMIT
