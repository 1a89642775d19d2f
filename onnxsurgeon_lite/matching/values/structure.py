"""Pair the values of two models, or of a model and references, where their contents do not decide.

Each function adds pairs to the table: by equal weights, paired inputs, modules or names. Side a is the references or
the first model, side b the model whose values are matched.
"""

from collections import Counter
from collections.abc import Mapping

from onnxsurgeon_lite.matching.values.contents import agreeing
from onnxsurgeon_lite.matching.values.facts import BATCH_NORM, INPUT, Fact
from onnxsurgeon_lite.matching.values.pair_table import (
    AROUND,
    BESIDE,
    FOLD_INTO,
    SAME,
    PairTable,
    shapes_fit,
    tells_layout,
)
from onnxsurgeon_lite.search.grouping import groups


def by_weights(table: PairTable) -> None:
    """Pair nodes of one operator whose constants are equal and unique for that operator."""

    # the same weights occur once on each side
    def key(fact: Fact) -> object:
        uses = fact.weights and fact.inputs
        return (fact.op, fact.slot, *sorted(fact.weights)) if uses else None

    for a, b in table.unique(key, key):
        if _may_be(table, a, b, AROUND):
            table.add(a, b, "weights", 0.9)


def by_inputs(table: PairTable) -> None:
    """Pair nodes of one operator on paired inputs, if each side has only one."""
    # value of side b -> nodes whose first input is that, also through inserted nodes
    readers = groups(
        (table.source_b(fact.inputs[0]), fact)
        for fact in table.b.facts.values()
        if fact.inputs and fact.name not in table.taken
    )
    free = [f for f in table.a.facts.values() if f.inputs and f.name not in table.pairs]
    # nodes of side a on the same inputs
    siblings = groups((fact.inputs, fact) for fact in free)
    for fact in free:
        first_input = table.pairs.get(table.source_a(fact.inputs[0]))
        if first_input is None:
            continue
        fitting = [f for f in readers[first_input.b] if _alike(table, fact, f)]
        if len(fitting) != 1:
            continue
        # a sibling that fits as well leaves open which of them it is
        others = (other for other in siblings[fact.inputs] if other is not fact)
        if not any(_alike(table, other, fitting[0]) for other in others):
            table.add(fact, fitting[0], "structure", 0.8)


def _alike(table: PairTable, a: Fact, b: Fact) -> bool:
    """Return whether operator, inputs, module and shape permit a pair."""
    if a.op != b.op or a.slot != b.slot or not _may_be(table, a, b, BESIDE):
        return False
    if not _of_one_layout(table, a, b):
        return False
    relation = table.relation(a, b)
    # a BatchNorm that is folded into a convolution gives it its module
    if relation == BESIDE:
        relation = SAME if a.op in FOLD_INTO else relation
    if table.inputs_agree(a, b):
        return relation >= AROUND
    # through inserted nodes only the same module is a proof
    return relation == SAME and table.inputs_agree(a, b, through=True)


def by_scope(table: PairTable) -> None:
    """Pair the only node of an operator in a module; for references, the only value that leaves it."""
    if not table.a.structured:
        _by_outputs(table)
        return

    def key(scope: str, fact: Fact) -> object:
        return (scope, fact.op, fact.slot) if fact.known and fact.scope and fact.inputs else None

    for a, b in table.unique(lambda f: key(table.scope_of_a(f), f), lambda f: key(f.scope, f)):
        if _may_be(table, a, b, AROUND) and _of_one_layout(table, a, b):
            table.add(a, b, "scope", 0.8)


def by_name(table: PairTable) -> None:
    """Pair values with equal names whose contents agree."""
    for name, a in table.a.facts.items():
        b = table.b.facts.get(name)
        if b is not None and _may_be(table, a, b, AROUND) and agreeing(a, b, transposed=False):
            table.add(a, b, "name", 0.9)


def _by_outputs(table: PairTable) -> None:
    """Pair what a module returned, as references recorded it, with the only value that leaves that module."""
    leaving = table.leaving
    # module -> the references that it returned
    returned = groups(
        (table.scope_of_a(fact), fact)
        for fact in table.a.facts.values()
        if fact.known and fact.scope
    )
    folded = _folded(table, leaving)
    # how many values each module computes
    inside = Counter(fact.scope for fact in table.b.facts.values())
    # an outer module returns what an inner one does: the inner one takes it first
    deepest_first = sorted(returned.items(), key=lambda item: -item[0].count("."))
    for module, (reference, *further_calls) in deepest_first:
        # a folded BatchNorm is what the convolution before it returns
        values = leaving.get(folded.get(module, module), [])
        # one reference of several calls: a hook that overwrites keeps the last, another the first
        second = f"{module}_1"
        is_one_of_several = second in leaving and second not in returned
        if further_calls or is_one_of_several or len(values) != 1 or module in folded.values():
            continue
        value = values[0]
        if _is_another(table, reference, value):
            continue
        if not reference.returned and (inside[module] != 1 or value.op == "Transpose"):
            continue  # which operator made it, or in which order of axes, is not known
        if value.known and table.free(reference, value) and shapes_fit(reference, value):
            table.add(reference, value, "scope", 0.7)
    for module, calls in returned.items():
        _by_calls(table, calls, _of_calls(module, len(calls), leaving))


def _is_another(table: PairTable, reference: Fact, value: Fact) -> bool:
    """Return whether the numbers show that a value is not what a reference was recorded of.

    A small value has those of a folded BatchNorm; a reference has those of the node behind, which wrote in place.
    """
    # a larger one was paired by its numbers
    others = table.a.facts.values() if value.small is not None else ()
    behind = (table.b.facts[user] for user in value.users)
    return not agreeing(reference, value) and (
        any(agreeing(reference, each) for each in behind)
        or any(agreeing(o, value) for o in others if not o.is_output and o.op != INPUT)
    )


def _of_calls(module: str, calls: int, leaving: Mapping[str, list[Fact]]) -> list[Fact]:
    """Return the values that leave a module that is called several times; TorchScript numbers the further calls."""
    # "layer", "layer_1", "layer_2"
    names = (module,) + tuple(f"{module}_{call}" for call in range(1, calls))
    return [fact for name in names for fact in leaving.get(name, ())]


def _by_calls(table: PairTable, references: list[Fact], values: list[Fact]) -> None:
    """Pair what the calls of one module returned, in their order, if no pair says otherwise."""
    if len(references) != len(values) or len(references) == 1:
        return
    # all calls, or none: one that does not fit shifts the others
    for reference, value in zip(references, values, strict=True):
        paired = table.pairs.get(reference.name)
        is_pair = paired is not None and paired.b == value.name
        may_be = table.free(reference, value) and shapes_fit(reference, value)
        if not (reference.returned and value.known and (is_pair or may_be)):
            return
    for reference, value in zip(references, values, strict=True):
        if table.free(reference, value):
            table.add(reference, value, "scope", 0.7)


def _folded(table: PairTable, leaving: Mapping[str, object]) -> dict[str, str]:
    """Map each BatchNorm module that the export folded away to the module before it, whose nodes compute both."""
    folded = {}
    facts = list(table.a.facts.values())
    for before, fact in zip(facts, facts[1:], strict=False):
        scope = table.scope_of_a(fact)
        if fact.class_name.startswith(BATCH_NORM) and scope not in leaving:
            folded[scope] = table.scope_of_a(before)
    return folded


def _of_one_layout(table: PairTable, a: Fact, b: Fact) -> bool:
    """Return whether two values are laid out alike: by their shape, their numbers, or what they are computed from.

    Exporters move and merge Transposes; the channels of a convolution are always axis 1.
    """
    if tells_layout(b.shape) or agreeing(a, b, transposed=False) or a.op == b.op in FOLD_INTO:
        return True
    return b.op != "Transpose" and table.inputs_agree(a, b)


def _may_be(table: PairTable, a: Fact, b: Fact, relation: int) -> bool:
    """Return whether nothing speaks against a pair, and their modules are at least so near."""
    if INPUT in (a.op, b.op) or a.blocked != b.blocked:
        return False
    if b.measures and not agreeing(a, b):
        return False  # each exporter computes sizes in its own way
    return table.relation(a, b) >= relation and table.free(a, b) and shapes_fit(a, b)
