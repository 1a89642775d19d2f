"""Compare `convert` with other converters: `python scripts/convert_peers [MODEL...]`; all models by default.

A peer runs in the Python given as PEERS_PYTHON, where it is installed. To float16, every result is computed by one
measure: each value rounded once, on each edge. Printed are the nodes that touch floats and stay in float32, the Casts,
and the error. To int8, `quantize_static` of everything stands beside `convert` with a goal.
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
from models import NAMES, models
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
GAIN = 6.0  # dB above what quantize_static of everything gives
STATIC = """
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
class Reader(CalibrationDataReader):
    left = [feeds]
    def get_next(self):
        return self.left.pop() if self.left else None
quantize_static(source, target, Reader(), quant_format=QuantFormat.QDQ)"""


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


def made_by_peer(python: str, code: str, *arguments: object) -> None:
    """Run a converter; what it makes, or not, is looked at afterwards."""
    words = [python, "-c", HEAD + code, *map(str, arguments)]
    subprocess.run(words, capture_output=True, check=False, timeout=600)


def halved(source: Path, data: Path, feeds: dict[str, np.ndarray], python: str) -> None:
    """Print a row for each converter to float16."""
    reference = dict(osl.run(source, feeds))
    print(
        f"\n{source.stem}: {'to float16':<15} {'float32':>8} {'Casts':>6} {'max abs':>10} {'seconds':>8}"
    )
    for name, code in {"ours": "", **PEERS}.items():
        target = source.with_name("half.onnx")
        target.unlink(missing_ok=True)
        start = time.monotonic()
        if name == "ours":
            osl.convert(source, "float16", tolerance=LIMIT, feeds=feeds).save(target)
        else:
            made_by_peer(python, code, source, target, data, LIMIT)
        seconds, row = time.monotonic() - start, f"{'':{len(source.stem)}}  {name:<15} "
        try:
            onnx.checker.check_model(str(target), full_check=True)
            wide, casts = counted(target)
            off = error(target, feeds, reference)
            print(f"{row} {wide:>7} {casts:>6} {off:>10.3g} {seconds:>8.1f}", flush=True)
        except Exception as problem:  # noqa: BLE001  a peer's result may be anything
            print(f"{row} fails: {str(problem).strip().splitlines()[0][:90]}", flush=True)


def ratio(path: Path, feeds: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> float:
    """The signal against the noise of the worst output, in dB."""
    found = dict(osl.run(path, feeds))
    noise = {n: np.square(found[n].astype(np.float64) - reference[n]).sum() for n in reference}
    signal = {n: np.square(reference[n].astype(np.float64)).sum() for n in reference}
    return min(float(10 * np.log10(signal[n] / noise[n])) for n in reference)


def quantized(source: Path, data: Path, feeds: dict[str, np.ndarray]) -> None:
    """Print what `quantize_static` makes, and what a goal above it takes."""
    reference, target = dict(osl.run(source, feeds)), source.with_name("int8.onnx")
    made_by_peer(sys.executable, STATIC, source, target, data, LIMIT)
    reached, size = ratio(target, feeds, reference), source.stat().st_size
    print(
        f"{source.stem}: quantize_static {reached:.1f} dB, {target.stat().st_size / size:.1%} of the bytes"
    )
    target.unlink()
    start, goal = time.monotonic(), reached + GAIN
    result = osl.convert(source, "int8", calibrate="minmax", min_sqnr=goal, feeds=feeds)
    result.save(target)
    seconds, found = time.monotonic() - start, ratio(target, feeds, reference)
    said = f"goal {goal:.1f} dB, {found:.1f} dB when run; {result.sentence}; {seconds:.1f} s"
    print(f"{'':{len(source.stem)}}  ours: {said}", flush=True)


def main() -> None:
    """Print a table for each model."""
    python = os.environ.get("PEERS_PYTHON", sys.executable)
    with TemporaryDirectory() as folder:
        found = models(sys.argv[1:] or NAMES, Path(folder))
        for path, feeds in found.values():
            data = path.with_suffix(".npz")
            np.savez(data, **feeds)
            halved(path, data, feeds, python)
        print()
        for name in found.keys() & {"resnet", "vit", "bert", "gpt2", "whisper", "unet"}:
            path, feeds = found[name]
            quantized(path, path.with_suffix(".npz"), feeds)


if __name__ == "__main__":
    main()
