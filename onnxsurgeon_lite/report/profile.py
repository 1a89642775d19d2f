"""`profile` for the terminal."""

from collections.abc import Mapping, Sequence

from onnxsurgeon_lite.debug.profiling import Cost, Profile, ProfileComparison, TimeChange
from onnxsurgeon_lite.names import first, shown
from onnxsurgeon_lite.report.plain import out, say, show_notes, size_text
from onnxsurgeon_lite.report.tables import show_table

_SHOWN = 12
_HELD = 3
_COLUMNS = ["ms", "share", "MACs", "GFLOP/s", "moved", "FLOP/byte"]


def show_profile(profile: Profile, by: str = "node") -> None:
    """Show the whole, then what costs most."""
    whole = profile.total
    rate = f"{2e-9 * whole.macs / profile.seconds:.3g} GFLOP/s" if profile.seconds else ""
    run = f"{_ms(profile.seconds)} ms a run (median of {profile.runs})"
    say(f"{run}, {_count(whole.macs)} MACs, {rate}")
    between = max(0.0, profile.seconds - whole.seconds)
    say(f"  in nodes {_ms(whole.seconds)} ms, between them {_ms(between)} ms")
    _show_memory(profile)
    out("")
    match by:
        case "operator":
            _show_operators(profile.by_operator(), whole.seconds)
        case "module":
            _show_modules(profile)
        case _:
            _show_nodes(profile, whole.seconds)
    if whole.unknown:
        show_notes([f"the shapes of {whole.unknown} nodes are not known: their MACs are left out"])
    if fell_back := profile.fell_back:
        names = ", ".join(repr(node.name) for node in fell_back[:_SHOWN])
        show_notes([f"{len(fell_back)} nodes did not run on {profile.provider}: {names}"])


def show_profiles(found: ProfileComparison) -> None:
    """Show both sides, then what changed most."""
    before, after = found.before.seconds, found.after.seconds
    ratio = f" ({after / before:.2f}x)" if before else ""
    say(f"{_ms(before)} ms a run before, {_ms(after)} ms after{ratio}")
    for what, changes in (("operator", found.operators), ("module", found.modules)):
        out("")
        _show_changes(what, changes)


def _show_memory(profile: Profile) -> None:
    if not profile.held:
        return
    held = first([f"{shown(h.value)} {size_text(h.bytes)}" for h in profile.held], _HELD)
    peak = profile.nodes[profile.peak]
    say(f"  at most {size_text(peak.live_bytes)} of values live, at {shown(peak.name)!r}: {held}")
    say(f"  weights {size_text(profile.total.parameter_bytes)}")


def _show_nodes(profile: Profile, whole: float) -> None:
    nodes = sorted(profile.nodes, key=lambda node: -node.cost.seconds)
    providers = ["provider"] if len({node.provider for node in nodes}) > 1 else []
    rows = []
    for node in nodes[:_SHOWN]:
        covers = ", ".join(node.covers[:_HELD]) + ", ..." * (len(node.covers) > _HELD)
        where = [node.provider] if providers else []
        rows.append(
            (*_cells(node.cost, whole), *where, node.op_type, node.name, covers, node.place)
        )
    show_table([*_COLUMNS, *providers, "operator", "name", "stands for", "place"], rows)
    _show_rest(len(nodes), "nodes")


def _show_operators(costs: Mapping[str, Cost], whole: float) -> None:
    rows = [(*_cells(cost, whole), name) for name, cost in list(costs.items())[:_SHOWN]]
    show_table([*_COLUMNS, "operator"], rows)
    _show_rest(len(costs), "operators")


def _show_modules(profile: Profile) -> None:
    costs = profile.by_module()
    rows = []
    for path, cost in sorted(costs.items(), key=lambda item: item[0].split(".")):
        above = (other for other in costs if not other or path.startswith(f"{other}."))
        depth = sum(other != path for other in above)
        rows.append((*_cells(cost, profile.total.seconds), "  " * depth + (path or "(root)")))
    show_table([*_COLUMNS, "module"], rows)


def _cells(cost: Cost, whole: float) -> tuple[str, ...]:
    return (
        _ms(cost.seconds),
        f"{cost.seconds / whole:.0%}" if whole else "",
        _count(cost.macs) if cost.macs else "",
        f"{cost.gflops:.3g}" if cost.macs else "",
        size_text(cost.moved_bytes),
        f"{cost.intensity:.3g}" if cost.macs else "",
    )


def _show_changes(what: str, changes: Sequence[TimeChange]) -> None:
    rows = [
        (
            "-" if change.before is None else _ms(change.before),
            "-" if change.after is None else _ms(change.after),
            f"{change.difference * 1e3:+.3g}",
            change.name or "(root)",
        )
        for change in changes[:_SHOWN]
    ]
    show_table(["before", "after", "ms", what], rows)
    _show_rest(len(changes), f"{what}s")


def _show_rest(count: int, what: str) -> None:
    if count > _SHOWN:
        out(f"... and {count - _SHOWN} more {what}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def _count(number: float) -> str:
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.4g}{unit}"
        number /= 1000
    return f"{number:.4g}T"
