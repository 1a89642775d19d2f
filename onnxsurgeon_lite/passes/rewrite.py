"""Rewrite what matches a pattern."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import ClassVar

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
)

from onnxsurgeon_lite.errors import EditError, UnknownNameError
from onnxsurgeon_lite.graph import (
    GraphIndex,
    bound_nodes,
    captured,
    check_node,
    constant,
    constant_of,
    first_version,
    function_path,
    graph_at,
    graphs_below,
    opset_versions,
    require_schemas,
    standing,
    type_text,
)
from onnxsurgeon_lite.graph.patterns import (
    Match,
    Matcher,
    Rule,
    closest,
    find_all,
    matchers_of,
    read_rules,
    reversed_rules,
)
from onnxsurgeon_lite.model import (
    Model,
    assign,
    call_key,
    copied,
    drop,
    function_key,
    plain_domain,
    take_fields,
    unknown_fields,
    walk,
)
from onnxsurgeon_lite.passes.fold import fold_positions
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.sort import sort_alone
from onnxsurgeon_lite.surgery import contradicts, follow, fresh, names_in, rename_uses
from onnxsurgeon_lite.surgery.edits import trimmed
from onnxsurgeon_lite.tensors import dtypes

_WHOLE = 9  # the opset from which on a Constant takes whole numbers
_LISTS = 12  # the opset from which on a Constant takes numbers that are not a tensor


@dataclass(frozen=True)
class Rewrite:
    """Replace every match of a rule's pattern, in bodies and functions too.

    A match is left alone when something outside reads a value inside it. Constants that a replacement computes with,
    as where a BatchNormalization goes into a convolution's weights, are folded; no other weight is read.

    Attributes:
        rules: files of ONNX text with functions `pattern` and `replacement`, rules that come with the package by
            name, or the text itself.
        reverse: find the replacement, and put the pattern in its place.

    Example:
        >>> model = osl.build("erf (float[4] x) => (float[4] y) { n = Neg(x) y = Neg(n) }")
        >>> rule = "pattern (x) => (y) { n = Neg(x) y = Neg(n) } replacement (x) => (x) {}"
        >>> osl.rewrite(model, rule).changes
        ("rule: 2 nodes, Neg @0 to Neg @1 -> 'x'",)
    """

    rules: tuple[str, ...]
    reverse: bool = False
    name: ClassVar[str] = "rewrite"

    def apply(self, model: Model) -> PassResult:
        """Rewrite; each rule as long as it makes the graph smaller, otherwise once.

        Raises:
            UnknownNameError: there is no such rule, or the model's opset lacks an operator of the replacement.
            BuildError: a rule is not ONNX text.
            UsageError: a rule has no replacement, or no reverse.
        """
        index = GraphIndex.of(model)
        require_schemas(index)
        return self.edit(index, explains=True)

    def edit(self, index: GraphIndex, explains: bool | None = None) -> PassResult:
        """Rewrite an indexed model.

        Args:
            explains: how near a rule without a match comes; False only where a condition refuses all of its nodes.
        """
        changes = list[str]()
        notes = list[str]()
        result = index
        for source in self.rules:
            rules = read_rules(source)
            rules = reversed_rules(rules) if self.reverse else rules
            done = _Rewriting(result, rules)
            result = done.run(explains)
            changes += done.changes
            notes += done.notes
        return PassResult.of(index.model, result.model, changes, notes)


@dataclass
class _Rewriting:
    """The rules of one file at work on a model."""

    source: GraphIndex
    rules: Sequence[Rule]

    def __post_init__(self) -> None:
        self.changes = list[str]()
        self.notes = list[str]()
        # rule and types of what it reads -> the types of its results
        self.checked = dict[object, list[TypeProto | None]]()
        # value -> the type that it has after a replacement, where the declared one contradicts
        self.stale = dict[str, TypeProto]()

    def run(self, explains: bool | None) -> GraphIndex:
        for rule in self.rules:
            if rule.replacement is None:
                rule.reversed()  # says what is missing
        current = self.source
        shrinks = True
        # as long as rules make the graph smaller; a rule that does not could go on forever
        while shrinks:
            found = list(_matches(current, self.rules))
            shrinks = False
            if any(matches for *_, matches in found):
                current, shrinks = self._round(current, found)
        if explains is not None and not self.changes:
            matchers = chain.from_iterable(matchers for *_, matchers, _ in found)
            said = closest(m for m in matchers if explains or m.refused)
            if explains or said:
                self.notes.append(f"{self.rules[0].name}: no match{said and '; nearest: '}{said}")
        return current

    def _round(self, before: GraphIndex, found: "Sequence[_Found]") -> tuple[GraphIndex, bool]:
        """Replace the matches; return the result, and whether it has fewer nodes."""
        result = before.model.copy()
        self.growth = 0
        # collected only if a replacement has inner values
        names = cache(lambda: names_in([before.graph]))  # few replacements name more values
        for scope, index, _, matches in found:
            target = graph_at(result.proto, scope)
            folded = self._rewrite(target, index, matches, scope, names) if matches else []
            # several outputs: readers may come before the last removed node
            if any(len(rule.pattern.function.output) > 1 for rule, _ in matches):
                sort_alone(target.node)
        self._add_functions(result.proto)
        after = GraphIndex.of(result)
        # a fold needs the index of the new graph
        if folded:
            fold_positions(after, {after.producer[name] for name in folded})
            after = GraphIndex.of(result)
        self.notes += follow(before, after, self.stale) if self.stale else ()
        self.stale = {}
        return after, self.growth < 0

    def _rewrite(
        self,
        target: GraphProto | FunctionProto,
        index: GraphIndex,
        matches: "Sequence[tuple[Rule, Match]]",
        scope: str,
        taken: Callable[[], set[str]],
    ) -> list[str]:
        """Replace the matches in one graph; return the values to fold."""
        removed = set(chain.from_iterable(match.removed for _, match in matches))
        added = dict[int, list[NodeProto]]()
        aliases = dict[str, str]()
        folded = list[str]()
        for rule, match in matches:
            new = _New(index, rule, match, taken)
            # new nodes take the place of the last one of the match
            added.setdefault(match.removed[-1], []).extend(new.nodes)
            aliases |= new.aliases
            self._check(index, rule, match, new.nodes, scope)
            folded += new.constant
            self.changes.append(_said(index, rule, match, new, scope))
        new_nodes = list(chain.from_iterable(added.values()))
        self.growth += len(new_nodes) - len(removed)
        # readers of values that are only handed through, then the nodes, then outputs
        names = _rename(target, index, aliases, removed, new_nodes)
        _replace(target, removed | _drop(target, index, removed, new_nodes, names), added)
        _add_identities(target, names)
        # `fold_positions` works on the main graph
        return [] if scope else folded

    def _check(
        self, index: GraphIndex, rule: Rule, match: Match, nodes: Sequence[NodeProto], scope: str
    ) -> None:
        """Check the new nodes against their schemas, once for each combination of types."""
        own = set(walk.outputs(nodes))
        names = dict.fromkeys(name for name in walk.inputs(nodes) if name not in own)
        results = [match.values[name] for name in rule.pattern.function.output]
        declared = {
            # values whose type the graph declares, so types of the inputs matter
            name: index.declarations[name]
            for name in results
            if name in index.declarations
        }
        if any(info.HasField("type") for info in declared.values()):
            index.learn_types(names)
        types = {name: index.types[name] for name in names if name in index.types}
        key = (id(rule),) + tuple(
            types[n].SerializeToString() if n in types else b"" for n in names
        )
        if key not in self.checked:
            known = _checked(index, rule, nodes, types)
            self.checked[key] = [known.get(name) for name in results]
        for name, kind in zip(results, self.checked[key], strict=True):
            if kind is not None and name in declared and contradicts(declared[name].type, kind):
                # the type of a value in a body is not followed outside: the rule has to exclude such a match
                if scope:
                    what = f"{name!r} in {scope!r} would have type {type_text(kind)}"
                    raise EditError(
                        f"rule {rule.name!r} does not fit: {what}, not {type_text(declared[name].type)}",
                        "add a condition to the rule that says where it holds, such as rank(x) == 2",
                    )
                self.stale[name] = kind

    def _add_functions(self, proto: ModelProto) -> None:
        """Add the functions of the rules that the model calls now, and import the domains of new nodes."""
        imports = _imports(proto, self.rules)
        if not imports and not any(rule.functions for rule in self.rules):
            return
        known = {function_key(function) for function in proto.functions}
        called = {call_key(node) for node in walk.nodes(walk.graphs(proto))}
        for rule in self.rules:
            for function in rule.functions:
                # only what the model calls now
                if function_key(function) in called - known:
                    known.add(function_key(function))
                    proto.functions.append(function)
        domains = {key[0] for key in called}
        proto.opset_import.extend(o for o in imports if o.domain in domains)


_Found = tuple[str, GraphIndex, list[Matcher], list[tuple[Rule, Match]]]
"""A graph's path and index, a matcher for each rule, and the matches in the order of the graph."""


def _matches(main: GraphIndex, rules: Sequence[Rule]) -> Iterator[_Found]:
    """Yield each graph of a model with its matches, inner graphs before those that hold them."""
    operators = {node.op_type for node in walk.nodes(rule.pattern.function for rule in rules)}
    for path, index in _scopes(main, operators):
        # one matcher for each rule, over one graph
        matchers = matchers_of(index, rules)
        yield path, index, matchers, find_all(matchers)


def _scopes(main: GraphIndex, operators: Set[str]) -> Iterator[tuple[str, GraphIndex]]:
    """Yield the graphs of a model, those of functions only where they have one of the operators."""
    # bodies of functions as models of their own
    for function in main.model.proto.functions:
        if operators.isdisjoint(node.op_type for node in walk.with_inner(function.node)):
            continue
        yield from graphs_below(standing(main.model, function), function_path(function))
    yield from graphs_below(main)


class _New:
    """The nodes that a match is replaced by.

    Attributes:
        aliases: output -> the value that it is, where the replacement hands an input on.
        constant: the values that depend on constants alone.
    """

    def __init__(
        self, index: GraphIndex, rule: Rule, match: Match, taken: Callable[[], set[str]]
    ) -> None:
        assert rule.replacement is not None
        function, own = rule.replacement.function, rule.pattern.function
        self.nodes = list[NodeProto]()
        self.aliases = dict[str, str]()
        self.constant = list[str]()
        # name in the rule -> value of the graph
        names = {name: match.values.get(name, "") for name in function.input}
        for result, name in zip(own.output, function.output, strict=True):
            # an output that is an input of the replacement: no node makes it
            if name in function.input:
                self.aliases[match.values[result]] = names[name]
            else:
                names[name] = match.values[result]
        if not function.node:
            return
        kind = index.types.get(match.values[own.output[0]], TypeProto())
        opset = opset_versions(index.model.proto.opset_import).get("", _LISTS)
        # attributes of the pattern get the values that they matched
        bound = bound_nodes(function, NodeProto(attribute=_named(match)))
        self.nodes = list(chain.from_iterable(_fitting(node, kind, opset) for node in bound))
        self._name(names, match.values[own.output[0]], taken)
        self._describe(index, match)
        self._find_constant(index)

    def _name(self, names: dict[str, str], base: str, taken: Callable[[], set[str]]) -> None:
        for node in walk.with_inner(self.nodes):
            for name in filter(None, node.output):
                # inner values of a replacement are named after the match's first output
                if name not in names:
                    names[name] = fresh(f"{base}_{name}", taken())
            node.output[:] = [names.get(name, "") for name in node.output]
        for node in walk.with_inner(self.nodes):
            node.input[:] = trimmed([names.get(name, name) for name in node.input])

    def _describe(self, index: GraphIndex, match: Match) -> None:
        """Give the new nodes the metadata of those that made their outputs, others that of the last one."""
        last = index.nodes[match.removed[-1]]
        for node in self.nodes:
            made = index.makers(node.output)
            old = index.nodes[made[0]] if made else last
            node.metadata_props.extend(old.metadata_props)
            if made:
                take_fields(node, old, ("name", "doc_string"))
                node.MergeFromString(unknown_fields(old))

    def _find_constant(self, index: GraphIndex) -> None:
        # values that the replacement computes from constants alone
        known = set[str]()
        for node in self.nodes:
            constants = (name in known or constant(index, name) is not None for name in node.input)
            if node.input and all(constants):
                self.constant += node.output
                known.update(node.output)
            # a Constant is known, and needs no folding
            elif node.op_type == "Constant":
                known.update(node.output)


def _named(match: Match) -> Iterator[AttributeProto]:
    for name, attribute in match.attributes.items():
        given = copied(attribute)
        given.name = name
        yield given


def _fitting(node: NodeProto, kind: TypeProto, opset: int) -> list[NodeProto]:
    """Return a node, as an opset takes it: a constant has a tensor, a float one the dtype of the match's output.

    Before whole numbers could be constant, floats are, and are cast.
    """
    tensor = constant_of(node)
    made = [node]
    if tensor is None:
        return made
    data_type = kind.tensor_type.elem_type
    dtype = dtypes.numpy_dtype(data_type or TensorProto.FLOAT)
    # a float constant takes the dtype of the match: float16 beside float16
    if tensor.data_type == TensorProto.FLOAT < data_type and dtypes.is_float(dtype):
        tensor = dtypes.from_array(dtypes.to_array(tensor).astype(dtype))
    # before opset 9: a float, and a Cast
    elif opset < _WHOLE and dtypes.numpy_dtype(tensor.data_type).kind in "biu":
        number = f"{node.output[0]}_number"
        made.append(helper.make_node("Cast", [number], node.output[:], to=tensor.data_type))
        node.output[0] = number
        tensor = dtypes.from_array(dtypes.wide(dtypes.to_array(tensor)))
    elif opset >= _LISTS:
        return made
    assign(node.attribute, [helper.make_attribute("value", tensor)])
    return made


def _checked(
    index: GraphIndex, rule: Rule, nodes: Sequence[NodeProto], types: Mapping[str, TypeProto]
) -> dict[str, TypeProto]:
    """Check new nodes; return the types that follow."""
    # a model of the new nodes alone, with typed inputs
    source = index.model.proto
    probe = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import)
    probe.opset_import.extend(_imports(source, [rule]))
    probe.functions.extend(chain(source.functions, rule.functions))
    probe.graph.node.extend(nodes)
    probe.graph.input.extend(ValueInfoProto(name=name, type=types[name]) for name in types)
    part = GraphIndex.of(index.model.with_proto(probe))
    known = dict[str, TypeProto]()
    for node in part.nodes:
        try:
            known |= check_node(part, node, f"the {node.op_type} of rule {rule.name!r}")
        except UnknownNameError as error:
            # an operator that the opset lacks: since when it exists
            since = first_version(node.op_type)
            if since:
                error.hint = (
                    f"{node.op_type} exists from opset {since} on: onnxdbg edit opset MODEL {since}"
                )
            raise
        # types that are known for the nodes after it
        part.types.update(known)
    return known


def _imports(proto: ModelProto, rules: Iterable[Rule]) -> list[OperatorSetIdProto]:
    """Return the imports that replacements need and a model lacks."""
    known = opset_versions(proto.opset_import)
    found = {}
    for rule in rules:
        assert rule.replacement is not None
        function = rule.replacement.function
        versions = opset_versions(function.opset_import)
        for domain in {plain_domain(node.domain) for node in function.node} - known.keys():
            found[domain] = helper.make_opsetid(domain, versions.get(domain, 1))
    return list(found.values())


def _rename(
    target: GraphProto | FunctionProto,
    index: GraphIndex,
    aliases: Mapping[str, str],
    removed: Set[int],
    added: Iterable[NodeProto],
) -> dict[str, str]:
    """Make readers of a value read what it is; return value -> what it is."""
    final = {}
    # a chain of values that were handed through
    for name, value in aliases.items():
        while value in aliases:
            value = aliases[value]
        final[name] = value
    readers = (target.node[position] for position in set(index.reading(final)) - removed)
    rename_uses(chain(added, readers), final)
    return final


def _add_identities(target: GraphProto | FunctionProto, names: Mapping[str, str]) -> None:
    """Give the outputs of a graph that are other values an Identity."""
    # an output keeps its name, so it needs a node that makes it
    for name in walk.output_names(target):
        if name in names:
            target.node.add(op_type="Identity", input=[names[name]], output=[name])


def _replace(
    target: GraphProto | FunctionProto, gone: Set[int], added: Mapping[int, Sequence[NodeProto]]
) -> None:
    """Remove nodes, and put others after their places."""
    nodes = [
        node
        for position, old in enumerate(target.node)
        for node in chain([] if position in gone else [old], added.get(position, ()))
    ]
    assign(target.node, nodes)


def _drop(
    target: GraphProto | FunctionProto,
    index: GraphIndex,
    removed: set[int],
    added: Iterable[NodeProto],
    names: Mapping[str, str],
) -> set[int]:
    """Drop what nothing mentions any more: types of replaced values, and constants that only those nodes read.

    Args:
        removed: the nodes that are replaced.
        names: value -> what its readers read now.

    Returns:
        The nodes of the constants, which are still there.
    """
    # what the removed nodes make and read, and who else reads that
    made, read = index.made_by(removed), index.read_by(removed)
    readers = index.readers(made | read | names.keys())
    left = {name for name, users in readers.items() if not removed.issuperset(users)}
    outputs = set(walk.output_names(target))
    # values that are still in use, by the names that they have now
    used = {names.get(name, name) for name in left | outputs} | outputs
    for node in added:
        used.update(node.input, node.output, captured(node) if node.attribute else ())
    gone = {name for name in read - used if constant(index, name) is not None}
    made -= used
    drop(target.value_info, lambda info: info.name in made | gone)
    if isinstance(target, GraphProto):
        drop(target.quantization_annotation, lambda note: note.tensor_name in made | gone)
        # scales and zero points of annotations that stay
        kept = walk.annotating(target)
        drop(target.initializer, lambda tensor: tensor.name in gone - kept)
    return set(index.makers(gone - index.initializers.keys()))


def _said(index: GraphIndex, rule: Rule, match: Match, new: _New, scope: str) -> str:
    path = scope and f"{scope}/"
    first, last = (index.describe(p, path) for p in (match.removed[0], match.removed[-1]))
    count = len(match.removed)
    what = f"{count} nodes, {first} to {last}" if count > 1 else first
    made = [node.op_type for node in new.nodes if node.op_type != "Constant"]
    made += map(repr, new.aliases.values())
    return f"{rule.name}: {what} -> {', '.join(made)}"
