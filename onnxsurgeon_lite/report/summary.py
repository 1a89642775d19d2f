"""`inspect`: what the terminal and the page show of it."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from onnxsurgeon_lite.graph import operator_text
from onnxsurgeon_lite.graph.modules import Module
from onnxsurgeon_lite.graph.scopes import place_text
from onnxsurgeon_lite.graph.summary import ModelSummary, NodeSummary, ValueSummary
from onnxsurgeon_lite.matching.stages import PackageSummary
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.plain import Columns, Rows, out, say, show_rows, show_table, size_text
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.tensors.metrics import number_text
from onnxsurgeon_lite.tensors.statistics import Distribution

End = tuple[str, ValueSummary]
_OPS_SHOWN = 12
_LONGEST = 2000  # characters of a doc string
_TREE_OPS = 3
_NUMBER = re.compile(r"\d+")


def show_summary(summary: ModelSummary) -> None:
    """A model at a glance."""
    opsets = ", ".join(f"{domain} {version}" for domain, version in summary.opsets.items())
    inner = summary.subgraphs
    subgraphs = f" and {inner:,} subgraph{'s' * (inner != 1)}" if inner else ""
    facts = {
        "model": summary.path,
        "graph": summary.graph,
        "producer": summary.producer,
        "ir version": str(summary.ir_version),
        "opsets": opsets,
        "parameters": f"{summary.parameters:,} ({size_text(summary.parameter_bytes)})",
        "data files": ", ".join(summary.data_files),
        "nodes": f"{summary.nodes:,}{subgraphs}",
        "functions": ", ".join(summary.functions),
        "dynamic dims": ", ".join(summary.dynamic_dims),
        "metadata": ", ".join(f"{k}={v}" for k, v in summary.metadata.items()),
        "doc": _cut(summary.doc_string),
    }
    _show_facts(facts)
    out("")
    show_rows(ends(summary), None)
    top = list(summary.ops.items())[:_OPS_SHOWN]
    # operators come most frequent first
    rest = len(summary.ops) - len(top)
    more = f", and {rest} more (--ops)" if rest > 0 else ""
    out("")
    say("ops: " + ", ".join(f"{shown(op)} {count}" for op, count in top) + more)


def show_ops(summary: ModelSummary) -> None:
    """Every operator with its count."""
    show_rows(counts(summary), None)


def show_stages(package: PackageSummary) -> None:
    """The models of a folder, and where each of their inputs comes from; layers that are alike share a line."""
    rows = []
    for stage in package.stages:
        # a number is that of a layer: `past.0.key` and `past.1.key` are alike
        ends = stage.inputs.items()
        lines = groups(((_NUMBER.sub("*", n), _NUMBER.sub("*", s)), (n, s)) for n, s in ends)
        for alike, each in lines.items():
            # one of its kind keeps its number
            name, source = alike if each[1:] else each[0]
            rows.append((stage.file, stage.runs, name, len(each), source))
    show_table(["model", "runs", "input", "#", "from"], rows)


def ends(summary: ModelSummary) -> Rows[End]:
    """Return the inputs, then the outputs."""
    found = [("input", v) for v in summary.inputs] + [("output", v) for v in summary.outputs]
    columns: Columns[End] = {
        "role": "{0[0]}",
        "name": "{0[1].name}",
        "type": "{0[1].type}",
    }
    return Rows("Inputs and outputs", found, columns)


def counts(summary: ModelSummary) -> Rows[tuple[str, int]]:
    """Return the operators with their counts."""
    columns: Columns[tuple[str, int]] = {"operator": "{0[0]}", "#": "{0[1]}"}
    return Rows("Operators", list(summary.ops.items()), columns)


def show_tree(modules: Sequence[Module]) -> None:
    """The module tree, a line a module, indented under the one that holds it."""
    above = list[str]()
    rows = []
    for module in modules:
        # modules come in order, so `above` is the path of those that hold this one: ["a.", "a.b."]
        while above and not module.path.startswith(above[-1]):
            above.pop()
        name = module.path.removeprefix(above[-1] if above else "") or "(root)"
        rows.append(("  " * (len(above) + bool(module.path)) + name, *_tree_cells(module)))
        if module.path:
            above.append(f"{module.path}.")
    show_table(["module", "class", "parameters #", "ops", "outputs"], rows)


def _tree_cells(module: Module) -> Sequence[str]:
    top = module.ops.most_common(_TREE_OPS)
    ops = ", ".join(f"{op} {count}" for op, count in top)
    more = " ..." if len(module.ops) > len(top) else ""
    types = list(dict.fromkeys(module.outputs.values()))
    outputs = "; ".join(types[:2]) + (" ..." if len(types) > 2 else "")
    return module.class_name, f"{module.parameters:,}", ops + more, outputs


def show_node(node: NodeSummary) -> None:
    """One node."""
    operator = operator_text(node.domain, node.op_type)
    facts = {
        "node": f"{operator} {node.id}",
        "name": node.name,
        "scope": place_text(node.scope, node.class_name, node.source),
        "doc": _cut(node.doc_string),
        **{f"attribute {name}": text for name, text in node.attributes.items()},
        **{f"body {name}": f"{count} nodes" for name, count in node.bodies.items()},
        "captures": ", ".join(node.captured),
        **{key: _cut(text) for key, text in node.metadata.items()},
    }
    _show_facts(facts)
    out("")
    rows = [("input", v.name, v.type, v.producer or v.kind) for v in node.inputs]
    rows += [("output", v.name, v.type, _users(v)) for v in node.outputs]
    show_table(["", "name", "type", "from / to"], rows)


def show_values(values: Sequence[ValueSummary]) -> None:
    """Values, with an empty line between."""
    for number, value in enumerate(values):
        if number:
            out("")
        facts = {
            "value": value.name,
            "type": value.type,
            "kind": value.kind + (", graph output" if value.is_output else ""),
            "numbers": value.numbers,
            "scope": place_text(value.scope, value.class_name, value.source),
            "producer": value.producer or "",
            "consumers": ", ".join(value.consumers),
        }
        _show_facts(facts)


def _users(value: ValueSummary) -> str:
    users = list(value.consumers)
    if value.is_output:
        users.append("graph output")
    return ", ".join(users)


def _show_facts(facts: Mapping[str, str]) -> None:
    # facts without a text are left out
    given: Iterable[tuple[str, str]] = [(key, text) for key, text in facts.items() if text]
    width = max(len(key) for key, _ in given)
    for key, text in given:
        say(f"{shown(key):<{width}}  {shown(text)}", indent=width + 2)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... ({len(text):,} characters)"


_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR = 40  # characters
_ODD = ("zeros", "NaN", "Inf", "outliers")
_TITLES = ["name", "dtype", "shape", "min", "max", "mean", "std", "odd"]


def show_distributions(tensors: Sequence[Distribution]) -> None:
    """Show a line a tensor; of one alone everything."""
    if len(tensors) == 1:
        _show_one(tensors[0])
        return
    rows = [(*_cells(t), _small(t.counts)) for t in tensors]
    show_table(_TITLES + ["histogram"], rows)


def _cells(tensor: Distribution) -> list[object]:
    numbers = (tensor.min, tensor.max, tensor.mean, tensor.std)
    odd = zip((tensor.zeros, tensor.nan, tensor.inf, tensor.outliers), _ODD, strict=True)
    told = ", ".join(f"{count} {what}" for count, what in odd if count)
    shape = list(tensor.shape)
    return [tensor.name, tensor.dtype, shape, *(number_text(n, 4) for n in numbers), told]


def _small(counts: Sequence[int]) -> str:
    """A column of a line's height for each bin; logarithmic, so that a few elements are seen beside many."""
    # eighths of a line
    heights = np.log1p(counts)
    return "".join(_BLOCKS[int(np.ceil(8 * h / heights.max()))] for h in heights)


def _show_one(tensor: Distribution) -> None:
    show_table(_TITLES, [_cells(tensor)])
    if tensor.min is None or tensor.max is None:
        return
    out("")
    quantiles = (f"{float(q):.4g}: {number_text(n, 4)}" for q, n in tensor.quantiles.items())
    what = "absolute values, by the share of elements that do not exceed them"
    say(f"{what}: {', '.join(quantiles)}")
    largest = ", ".join(f"{number_text(e.value, 4)} at {list(e.index)}" for e in tensor.largest)
    say(f"largest: {largest}")
    out("")
    shares = (i / len(tensor.counts) for i in range(len(tensor.counts)))
    # not min + share * (max - min): the difference may overflow
    edges = (tensor.min * (1 - share) + tensor.max * share for share in shares)
    bars = (round(_BAR * count / max(tensor.counts)) for count in tensor.counts)
    rows = [
        (number_text(edge, 4), count, "█" * bar + "▏" * (count > 0 and not bar))
        for edge, count, bar in zip(edges, tensor.counts, bars, strict=True)
    ]
    show_table(["from #", "elements #", ""], rows)
