"""Measure a page in a browser: `python scripts/pages/measure_page.py [NODES]`, 50,000 by default.

A page of that many nodes, in modules of layers, with an error at each; how large it is, how long the browser takes to
open it, to choose a node and to search, and what memory its processes take.
"""

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import onnxsurgeon_lite as osl
from kit.browsing import Visit, started
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import loaded
from onnxsurgeon_lite.report.page import Sight, page_of
from onnxsurgeon_lite.report.page.html import html
from onnxsurgeon_lite.report.page.measures import NodeNumber, of_nodes

LAYER = 20  # nodes of a module


def model_of(nodes: int) -> osl.Model:
    """A chain of blocks, each a module with a residual."""
    made, last, around = [], "x", "x"
    for number in range(nodes):
        layer, place = divmod(number, LAYER)
        if place == 0:
            around = last
        name = f"/encoder/layer.{layer // 10}/block.{layer % 10}/op.{place}"
        inputs = [last, around] if place == LAYER - 1 else [last, "w"]
        made.append(helper.make_node("Add", inputs, [f"v{number}"], name=name))
        last = f"v{number}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", last)]
    weight = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    graph = helper.make_graph(made, "large", ends[:1], ends[1:], [weight])
    return loaded(helper.make_model(graph))


def memory() -> int:
    """Bytes that the processes of the browser hold, shared ones by their part."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = status.read_text().rpartition(")")
            parents[int(status.parent.name)] = name, int(rest.split()[1])
    mine = {os.getpid()}
    while more := {p for p, (_, parent) in parents.items() if parent in mine} - mine:
        mine |= more
    total = 0
    for process in mine:
        with contextlib.suppress(OSError):
            if "chrom" in parents[process][0]:
                text = Path(f"/proc/{process}/smaps_rollup").read_text()
                total += 1024 * int(text.split("\nPss:")[1].split()[0])
    return total


def main(nodes: int) -> None:
    """Make the page and print a line for each thing measured."""
    index = GraphIndex.of(model_of(nodes))
    start = time.perf_counter()
    points = [
        NodeNumber(f"@{n}", f"v{n}", 1e-6 * (1 + n % 97), n % 1000 == 999) for n in range(nodes)
    ]
    sight = Sight([index])
    page = page_of(osl.inspect(index.model), sight)
    page.measures.insert(0, of_nodes("Error", "max abs", points, log=True))
    text = html(page)
    print(f"{nodes:,} nodes: {len(text) / 1e6:.1f} MB, made in {time.perf_counter() - start:.1f} s")
    with tempfile.TemporaryDirectory() as folder, started() as browser, Visit(browser) as visit:
        file = Path(folder) / "page.html"
        file.write_bytes(text)
        visit.open("about:blank")
        blank = memory()
        start = time.perf_counter()
        opened = visit.context.new_page()
        devtools = visit.context.new_cdp_session(opened)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        opened.goto(file.as_uri())
        opened.wait_for_selector("body[data-ready]")
        taken = time.perf_counter() - start
        metrics = devtools.send("Performance.getMetrics")["metrics"]
        busy = next(each["value"] for each in metrics if each["name"] == "TaskDuration")
        print(f"opened in {taken:.2f} s, in which its thread computed for {busy:.2f} s")
        for what, action in (
            ("chosen", lambda: opened.evaluate(f"choose(0, {nodes // 2})")),
            ("searched", lambda: opened.fill("#query", f"v{nodes - 1}")),
        ):
            start = time.perf_counter()
            action()
            print(f"{what} in {time.perf_counter() - start:.2f} s")
        whole = memory()
        print(
            f"memory: {(whole - blank) / 1e6:.0f} MB, and {blank / 1e6:.0f} MB of the browser itself"
        )
        heap = opened.evaluate("performance.memory.usedJSHeapSize")
        print(f"of it the page's objects {heap / 1e6:.0f} MB")
        if visit.complaints:
            print("\n".join(visit.complaints))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
