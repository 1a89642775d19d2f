"""`profile`: what the terminal and the page show of it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter

from onnxsurgeon_lite.debug.profiling.fusions import Fusions
from onnxsurgeon_lite.debug.profiling.placement import PlacedNode, Placement
from onnxsurgeon_lite.debug.profiling.result import (
    Cost,
    Profile,
    ProfileComparison,
    ProfiledNode,
    TimeChange,
)
from onnxsurgeon_lite.names import first, shown
from onnxsurgeon_lite.report.plain import (
    Cell,
    Columns,
    Rows,
    T,
    out,
    say,
    show_notes,
    show_rows,
    size_text,
)
from onnxsurgeon_lite.search.grouping import groups

_SHOWN = 12
_HELD = 3
Named = tuple[str, Cost]
"""An operator or a module, and what it takes."""
Provided = tuple[str, Counter[str]]
"""A provider, and the operators that it runs."""


def show_profile(profile: Profile, by: str = "node") -> None:
    """Show the whole, then what costs most."""
    whole = profile.total
    # a multiply-accumulate is two operations
    rate = f"{2e-9 * whole.macs / profile.seconds:.3g} GFLOP/s" if profile.seconds else ""
    run = f"{milliseconds(profile.seconds)} ms a run (median of {profile.runs})"
    say(f"{run}, {_count(whole.macs)} MACs, {rate}")
    # clocks differ a little: not below 0
    between = max(0.0, profile.seconds - whole.seconds)
    say(f"  in nodes {milliseconds(whole.seconds)} ms, between them {milliseconds(between)} ms")
    _show_memory(profile)
    out("")
    match by:
        case "operator":
            show_rows(operators(profile), _SHOWN, "operators")
        case "module":
            show_rows(modules(profile), None)
        case _:
            show_rows(nodes(profile), _SHOWN, "nodes")
    if whole.unknown:
        show_notes([f"the shapes of {whole.unknown} nodes are not known: their MACs are left out"])
    if fell_back := profile.fell_back:
        names = ", ".join(repr(node.name) for node in fell_back[:_SHOWN])
        show_notes([f"{len(fell_back)} nodes did not run on {profile.provider}: {names}"])


def show_profiles(found: ProfileComparison) -> None:
    """Show both sides, then what changed most."""
    before, after = (milliseconds(side.seconds) for side in (found.before, found.after))
    say(f"{before} ms a run before, {after} ms after{ratio(found)}")
    for rows in changes(found):
        out("")
        show_rows(rows, _SHOWN, rows.title.lower())


def show_placement(found: Placement) -> None:
    """Show what each provider runs, then the nodes that another one runs than was asked for."""
    show_rows(providers(found), None)
    say(f"values that pass between providers: {len(found.crossings)}")
    if found.fell_back:
        out("")
        say(f"not on {shown(found.provider)}:")
        show_rows(placed(replace(found, nodes=found.fell_back)))
    if any(not node.provider for node in found.nodes):
        show_notes(
            ["the runtime lists no node of this name: it removed, folded, fused or expanded it"]
        )
    if found.watched:
        show_notes(["a run showed where the nodes are: this version of the runtime does not say"])


def providers(found: Placement) -> Rows[Provided]:
    """Return the providers, the one that was asked for first."""
    # all providers, also those that run no node of the model
    ops = {name: Counter[str]() for name in (found.provider, *found.parts, *found.made)}
    for node in found.nodes:
        ops.setdefault(node.provider, Counter())[node.op_type] += 1
    columns: dict[str, Cell[Provided]] = {
        "provider": lambda each: each[0] or "(not listed)",
        "parts #": lambda each: found.parts.get(each[0], ""),
        "nodes #": lambda each: each[1].total(),
        "operators": lambda each: ", ".join(f"{op} {n}" for op, n in each[1].most_common(_HELD)),
    }
    if found.made:
        columns["made by the runtime"] = lambda each: first(found.made.get(each[0], []), _HELD)
    return Rows("Providers", list(ops.items()), columns)


def placed(found: Placement) -> Rows[PlacedNode]:
    """Return the nodes with their providers."""
    columns: Columns[PlacedNode] = {
        "provider": "{0.provider}",
        "part": lambda node: "" if node.part is None else node.part,
        "operator": "{0.op_type}",
        "node": "{0.id}",
        "name": "{0.name}",
    }
    return Rows("Nodes", found.nodes, columns, "{0.id}")


def show_fusions(found: Fusions) -> None:
    """Show what was fused, then what nearly was and why not; what is alike in one line."""
    say(f"optimizers: {shown(found.optimizers)}")
    every = found.made + found.missed
    alike = groups(((each.operator, each.why), " ".join(each.nodes)) for each in every)
    for (operator, why), nodes in alike.items():
        said = (
            f"no {operator} of {first(nodes, _HELD)}: {why}"
            if why
            else f"{operator} of {first(nodes, _HELD)}"
        )
        say(shown(said))


def _show_memory(profile: Profile) -> None:
    if not profile.held:
        return
    held = first([f"{shown(h.value)} {size_text(h.bytes)}" for h in profile.held], _HELD)
    peak = profile.nodes[profile.peak]
    say(f"  at most {size_text(peak.live_bytes)} of values live, at {shown(peak.name)!r}: {held}")
    say(f"  weights {size_text(profile.total.parameter_bytes)}")


def nodes(profile: Profile) -> Rows[ProfiledNode]:
    """Return the nodes, the slowest first."""
    found = sorted(profile.nodes, key=lambda node: -node.cost.seconds)
    provider: Columns[ProfiledNode] = {"provider": "{0.provider}"}
    columns: Columns[ProfiledNode] = {
        **_costs(profile, attrgetter("cost")),
        **(provider if len({node.provider for node in found}) > 1 else {}),
        "operator": "{0.op_type}",
        "name": "{0.name}",
        "stands for": lambda n: ", ".join(n.covers[:_HELD]) + ", ..." * (len(n.covers) > _HELD),
        "place": "{0.place}",
    }
    return Rows("Nodes", found, columns, drawn_at)


def drawn_at(node: ProfiledNode) -> str:
    """Return the node of the model that a fused one is drawn at: the last that it stands for."""
    return node.covers[-1] if node.covers else ""


def operators(profile: Profile) -> Rows[Named]:
    """Return the operators, the slowest first."""
    return _sums("Operators", "operator", list(profile.by_operator().items()), profile)


def modules(profile: Profile) -> Rows[Named]:
    """Return the modules, each below the one that holds it."""
    costs = profile.by_module()
    rows = []
    for path, cost in sorted(costs.items(), key=lambda item: item[0].split(".")):
        # "a.b.c" lies in "", "a" and "a.b"
        above = (other for other in costs if not other or path.startswith(f"{other}."))
        depth = sum(other != path for other in above)
        rows.append(("  " * depth + (path or "(root)"), cost))
    return _sums("Modules", "module", rows, profile)


def _sums(title: str, what: str, items: Sequence[Named], profile: Profile) -> Rows[Named]:
    return Rows(title, items, {**_costs(profile, itemgetter(1)), what: "{0[0]}"})


def _costs(profile: Profile, of: Callable[[T], Cost]) -> Columns[T]:
    """Return the columns of costs.

    Args:
        of: gives the cost of an item.
    """
    whole = profile.total.seconds

    # each cell is a function of a cost: its column gives it that of an item
    def column(cell: Callable[[Cost], str]) -> Callable[[T], str]:
        return lambda item: cell(of(item))

    return {
        "ms": column(lambda cost: milliseconds(cost.seconds)),
        "share": column(lambda cost: f"{cost.seconds / whole:.0%}" if whole else ""),
        "MACs": column(lambda cost: _count(cost.macs) if cost.macs else ""),
        "GFLOP/s": column(lambda cost: f"{cost.gflops:.3g}" if cost.macs else ""),
        "moved": column(lambda cost: size_text(cost.moved_bytes)),
        "FLOP/byte": column(lambda cost: f"{cost.intensity:.3g}" if cost.macs else ""),
    }


def changes(found: ProfileComparison) -> list[Rows[TimeChange]]:
    """Return what changed, the most first, of operators and of modules."""
    sums = ("Operators", "operator", found.operators), ("Modules", "module", found.modules)
    return [_changed(*each) for each in sums]


def _changed(title: str, what: str, found: Sequence[TimeChange]) -> Rows[TimeChange]:
    columns: Columns[TimeChange] = {
        "before": lambda c: "-" if c.before is None else milliseconds(c.before),
        "after": lambda c: "-" if c.after is None else milliseconds(c.after),
        "ms": lambda c: f"{c.difference * 1e3:+.3g}",
        what: lambda c: c.name or "(root)",
    }
    return Rows(title, found, columns)


def ratio(found: ProfileComparison) -> str:
    """Say how many times as long a run takes after."""
    before = found.before.seconds
    return f" ({found.after.seconds / before:.2f}x)" if before else ""


def milliseconds(seconds: float) -> str:
    """Return seconds as milliseconds."""
    return f"{seconds * 1e3:.3g}"


def _count(number: float) -> str:
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.4g}{unit}"
        number /= 1000
    return f"{number:.4g}T"
