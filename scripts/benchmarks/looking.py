"""How long looks around a graph and completions take in a session, on 500 and on 50 000 nodes; 1 when that is long.

Each is asked for anew some times, after a first time: a session indexes the graph while its user reads and types.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from IPython.core.completer import provisionalcompleter
from IPython.terminal.interactiveshell import TerminalInteractiveShell
from onnx import TensorProto, helper, numpy_helper

from onnxsurgeon_lite.repl.opening import open_session
from onnxsurgeon_lite.repl.session import PromptSession
from onnxsurgeon_lite.repl.shell import install

INSTANT, SLOWER, NOTHING = 0.1, 3.0, 0.002  # seconds; times; seconds that no one sees


def make(nodes: int, path: Path) -> None:
    """A chain with short cuts, ten nodes a module."""
    made = [
        helper.make_node(
            ("Add", "Mul", "Sub")[i % 3],
            [f"v{i}", "one" if i % 7 else f"v{max(0, i - 5)}"],
            [f"v{i + 1}"],
            f"/layers.{i // 10}/sub/Op_{i}",
        )
        for i in range(nodes)
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("v0", f"v{nodes}")
    ]
    one = numpy_helper.from_array(np.ones(4, np.float32), "one")
    graph = helper.make_graph(made, "looking", ends[:1], ends[1:], [one])
    onnx.save(
        helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), path
    )


def looks(session: PromptSession, nodes: int) -> dict[str, Callable[[int], object]]:
    """What is asked, each of another place in the graph."""
    graph, dbg = session.namespace["graph"], session.dbg
    shell = TerminalInteractiveShell(user_ns=session.namespace)
    shell.Completer.use_jedi = False
    install(shell, session)

    def tab(text: str) -> list[object]:
        with provisionalcompleter():
            return list(shell.Completer.completions(text, len(text)))

    return {
        'graph["v25"]': lambda i: repr(graph[f"v{i}"]),
        "node.inputs": lambda i: repr(graph[f"@{i}"].inputs),
        "producer": lambda i: repr(graph[f"v{i}"].producer),
        "consumers": lambda i: repr(graph[f"v{i}"].consumers),
        "around": lambda i: repr(graph.around(f"v{i}", radius=2)),
        "path": lambda i: repr(graph.path(f"v{i}", f"v{i + 10}")),
        "find": lambda i: repr(graph.find(op="Mul", scope=f"layers.{i // 10}.*")),
        "find scope": lambda i: repr(graph.find(scope=f"layers.{i // 10}")),
        "find op": lambda _: repr(graph.find(op="Mul")),
        "find name": lambda i: repr(graph.find(name=f"/layers.{i // 10}/*")),
        "where": lambda _: dbg.where(),
        "break": lambda i: dbg.breakpoints.delete(dbg.break_(f"v{i}").number),
        "tab: print": lambda i: tab(f"print v{i // 10}"),
        "tab: break": lambda i: tab(f"break /layers.{i // 100}"),
        "tab: scope": lambda i: tab(f"break scope:layers.{i // 100}"),
        "tab: graph[": lambda i: tab(f"graph['v{i // 10}"),
        "tab: find": lambda _: tab("graph.find(op='A"),
        "tab: model.": lambda _: tab("model.re"),
    }


def times(nodes: int, folder: Path) -> dict[str, float]:
    """Seconds that each look takes, the median of some."""
    make(nodes, folder / f"{nodes}.onnx")
    session = open_session(folder / f"{nodes}.onnx")
    taken = dict[str, float]()
    with session.dbg:
        for name, look in looks(session, nodes).items():
            look(nodes // 2)
            taken[name] = statistics.median(_time(look, nodes // 3 + 10 * i) for i in range(9))
    return taken


def _time(look: Callable[[int], object], place: int) -> float:
    start = time.perf_counter()
    look(place)
    return time.perf_counter() - start


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        few, many = times(500, Path(folder)), times(50_000, Path(folder))
    missed = 0
    for name, taken in many.items():
        slow = taken > INSTANT or taken > max(SLOWER * few[name], NOTHING)
        missed += slow
        figures = f"{1000 * few[name]:8.2f} ms {1000 * taken:8.2f} ms"
        print(f"{name:<14} {figures} {'MISSED' if slow else ''}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
