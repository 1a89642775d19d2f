"""`inspect` and `view` for the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from onnxsurgeon_lite.graph.modules import Module
from onnxsurgeon_lite.graph.scopes import place_text
from onnxsurgeon_lite.graph.summary import ModelSummary, NodeSummary, ValueSummary
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.plain import note, out, say, size_text, stdout
from onnxsurgeon_lite.report.tables import show_table

if TYPE_CHECKING:
    from onnxsurgeon_lite.report.page.view import View

_OPS_SHOWN = 12
_LONGEST = 2000  # characters of a doc string
_TREE_OPS = 3


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
    values = [("input", v) for v in summary.inputs] + [("output", v) for v in summary.outputs]
    show_table(["", "name", "type"], [(kind, v.name, v.type) for kind, v in values])
    top = list(summary.ops.items())[:_OPS_SHOWN]
    rest = len(summary.ops) - len(top)
    more = f", and {rest} more (--ops)" if rest > 0 else ""
    out("")
    say("ops: " + ", ".join(f"{shown(op)} {count}" for op, count in top) + more)


def show_view(result: "View") -> None:
    """Where a page is; at once, because its server goes on."""
    out(result.address)
    if result.is_served:
        note("Ctrl-C ends it")
    stdout().flush()


def show_ops(summary: ModelSummary) -> None:
    """Every operator with its count."""
    show_table(["operator", "#"], summary.ops.items())


def show_tree(modules: Sequence[Module]) -> None:
    """The module tree, a line a module, indented under the one that holds it."""
    above: list[str] = []
    rows = []
    for module in modules:
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
    operator = "::".join(filter(None, (node.domain, node.op_type)))
    facts = {
        "node": f"{operator} {node.id}",
        "name": node.name,
        "scope": place_text(node.scope, node.class_name, node.source),
        "doc": _cut(node.doc_string),
        **{f"attribute {name}": text for name, text in node.attributes.items()},
        **{f"body {name}": f"{count} nodes" for name, count in node.bodies.items()},
        "captures": ", ".join(node.captured),
        **node.metadata,
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
    return ", ".join([*value.consumers, *(["graph output"] if value.is_output else [])])


def _show_facts(facts: Mapping[str, str]) -> None:
    given: Iterable[tuple[str, str]] = [(key, text) for key, text in facts.items() if text]
    width = max(len(key) for key, _ in given)
    for key, text in given:
        say(f"{shown(key):<{width}}  {shown(text)}", indent=width + 2)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... ({len(text):,} characters)"
