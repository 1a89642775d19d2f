"""Compare `convert` with other converters to float16: `python scripts/convert_peers.py MODEL.onnx=FEEDS.npz ...`.

A peer runs in the Python given as PEERS_PYTHON, where it is installed. Every result is computed by one measure: each
value rounded once, on each edge. Printed are the nodes that touch floats and stay in float32, the Casts, and the error.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import TensorProto

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.graph.bodies import InnerGraph
from onnxsurgeon_lite.model import walk

PEERS = {
    "occ float16": """
from onnxconverter_common import float16
onnx.save(float16.convert_float_to_float16(onnx.load(source), keep_io_types=True), target)""",
    "occ auto_mixed": """
from onnxconverter_common.auto_mixed_precision import auto_convert_mixed_precision
onnx.save(auto_convert_mixed_precision(onnx.load(source), feeds, rtol=0.01, atol=limit, keep_io_types=True), target)""",
    "ort float16": """
from onnxruntime.transformers.float16 import convert_float_to_float16
onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)""",
    "autocast": """
from modelopt.onnx.autocast import convert_to_mixed_precision
how = dict(low_precision_type="fp16", keep_io_types=True, calibration_data=data)
onnx.save(convert_to_mixed_precision(source, **how), target)""",
}
HEAD = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, onnx
source, target, data, limit = *sys.argv[1:4], float(sys.argv[4])
feeds = dict(np.load(data))
"""
LIMIT = 0.01


def error(path: Path, feeds: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> float:
    """The largest error of an output, with each value computed by itself."""
    index = osl.GraphIndex.of(osl.load(path))
    from onnxsurgeon_lite.runtime.observe import Observer

    with osl.Runtime(osl.RuntimeOptions(opt="none")) as runtime:
        observer = Observer(index, runtime, by_node=True)
        observer.feed(feeds)
        fetched = observer.fetch(list(index.outputs))
    found = dict(zip(reference, (fetched[name] for name in index.outputs), strict=True))
    gaps = [np.abs(found[n].astype(np.float64) - reference[n]).max() for n in reference]
    return float(max(gaps)) if np.isfinite(gaps).all() else float("nan")


def counted(path: Path) -> tuple[int, int]:
    """(nodes that make or read float32, Casts aside; Casts), in bodies too."""
    main = osl.GraphIndex.of(osl.load(path))
    wide = casts = 0
    for index in graphs(main):
        for node in index.nodes:
            kinds = [index.type_of(name) for name in (*node.input, *node.output) if name]
            floats = {k.tensor_type.elem_type for k in kinds if k is not None}
            wide += node.op_type not in ("Cast", "Constant") and TensorProto.FLOAT in floats
            casts += node.op_type == "Cast"
    return wide, casts


def graphs(index: osl.GraphIndex) -> Iterator[osl.GraphIndex]:
    """The graph and its bodies."""
    yield index
    for position, node in enumerate(index.nodes):
        for name, _ in walk.bodies(node):
            yield from graphs(InnerGraph.of(index, position, name).index)


def main() -> None:
    """Print a table for each model."""
    python = os.environ.get("PEERS_PYTHON", sys.executable)
    for argument in sys.argv[1:]:
        source, _, data = argument.partition("=")
        feeds = dict(np.load(data))
        reference = dict(osl.run(source, feeds))
        print(
            f"\n{Path(source).stem}: {'tool':<15} {'float32':>8} {'Casts':>6} {'max abs':>10} {'seconds':>8}"
        )
        with TemporaryDirectory() as folder:
            for name, code in {"ours": "", **PEERS}.items():
                target = Path(folder, "half.onnx")
                target.unlink(missing_ok=True)
                start = time.monotonic()
                if name == "ours":
                    osl.convert(source, "float16", tolerance=LIMIT, feeds=feeds).save(target)
                else:
                    words = [python, "-c", HEAD + code, source, str(target), data, str(LIMIT)]
                    subprocess.run(words, capture_output=True, check=False, timeout=600)
                seconds = time.monotonic() - start
                row = f"{'':{len(Path(source).stem)}}  {name:<15} "
                try:
                    onnx.checker.check_model(str(target), full_check=True)
                    wide, casts = counted(target)
                    print(
                        f"{row} {wide:>7} {casts:>6} {error(target, feeds, reference):>10.3g} {seconds:>8.1f}",
                        flush=True,
                    )
                except Exception as problem:  # noqa: BLE001  a peer's result may be anything
                    print(f"{row} fails: {str(problem).strip().splitlines()[0][:90]}", flush=True)


if __name__ == "__main__":
    main()
