"""The module tree of a model: the nodes, parameters and outputs of each source module."""

import math
from collections import Counter
from dataclasses import dataclass, field

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.text import type_text
from onnxsurgeon_lite.shown import Shown


@dataclass
class Module:
    """A module of the source program and its contents.

    Attributes:
        path: dotted; '' is the root. class_name: without its package; '' if the exporter did not record it.
        ops: operator -> count. parameters: elements of the initializers that its nodes use first.
        outputs: the types of the values that leave the module, by name.
    """

    path: str
    class_name: str = ""
    ops: Counter[str] = field(default_factory=Counter)
    parameters: int = 0
    outputs: dict[str, str] = field(default_factory=dict)


class ModuleTree(Shown, list[Module]):
    """Modules, each before those inside it."""


def module_tree(index: GraphIndex, depth: int | None = None) -> ModuleTree:
    """Return each module that contains a node, the root first, parents before children, in graph order.

    Args:
        depth: how many modules deep, without the root.
    """
    modules = dict[str, Module]()
    holders = [("", *origin.around()[:depth]) for origin in index.origins]
    counted = set[str]()
    for position in index.order:
        node, origin = index.nodes[position], index.origins[position]
        # an initializer belongs to the module of its first reader
        used = {n for n in index.reads[position] if n in index.initializers} - counted
        counted |= used
        size = sum(math.prod(index.initializers[name].dims) for name in used)
        classes = dict(origin.modules)
        for path in holders[position]:  # a node counts in its module and in all modules around that
            module = modules.setdefault(path, Module(path))
            module.class_name = module.class_name or classes.get(path, "").rpartition(".")[2]
            module.ops[node.op_type] += 1
            module.parameters += size
    _add_outputs(index, modules, holders)
    place = {path: number for number, path in enumerate(modules)}
    # Sort by the places of all enclosing modules: each comes before those inside it, and these stay together.
    ordered = {
        path: [place[path[:end]] for end in _ends(path) if path[:end] in place] for path in modules
    }
    return ModuleTree(sorted(modules.values(), key=lambda module: ordered[module.path]))


def _add_outputs(
    index: GraphIndex, modules: dict[str, Module], holders: list[tuple[str, ...]]
) -> None:
    leaving = list[tuple[str, str]]()
    for name, position in index.producer.items():
        users = [set(holders[user]) for user in index.users(name)]
        for path in holders[position]:
            # a reader outside of the module
            if name in index.outputs or any(path not in user for user in users):
                leaving.append((path, name))
    index.learn_types(name for _, name in leaving)
    for path, name in leaving:
        modules[path].outputs[name] = type_text(index.types.get(name))


def _ends(path: str) -> list[int]:
    """Return where the path of each enclosing module, and of the module itself, ends."""
    return [0] + [i for i, c in enumerate(path) if c == "."] + [len(path)] if path else [0]
