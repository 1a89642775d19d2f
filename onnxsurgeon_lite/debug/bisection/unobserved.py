"""Runs that return only the outputs, unoptimized and optimized, and what changes them besides the inputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from onnxsurgeon_lite.debug.judge import AgainstReferences
from onnxsurgeon_lite.debug.result import BisectResult
from onnxsurgeon_lite.errors import RuntimeFailure, RuntimeLost
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.names import joined
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.comparison import Comparison, apart
from onnxsurgeon_lite.tensors.dtypes import RunValue, RunValues, is_array

_SLIGHT = 10.0  # errors up to this many times what is allowed may be rounding
_NOISE = 4.0  # errors within this many times the noise are noise


@dataclass
class Unobserved:
    """Runs of one model on one set of feeds that return only the outputs.

    Attributes:
        runtime: the runtime with optimization on, None to leave that look out.
        result: receives findings and notes.
        run_unoptimized: returns the outputs with optimization off.
    """

    index: GraphIndex
    feeds: Feeds
    judge: AgainstReferences
    targets: Sequence[str]
    runtime: Runtime | None
    result: BisectResult
    run_unoptimized: Callable[[], RunValues]
    _repeated: bool = False

    @cached_property
    def unoptimized(self) -> RunValues:
        """The outputs with optimization off."""
        return self.run_unoptimized()

    @cached_property
    def optimized(self) -> RunValues | None:
        """The outputs with optimization on; None if the runtime crashes, which becomes a finding."""
        if self.runtime is None:
            return None
        try:
            return run(self.index, self.feeds, self.runtime, self.targets)
        except RuntimeLost as error:
            self.result.add_finding("crash", f"with optimization on, {error.message}")
            self.runtime.restart()
        except RuntimeFailure as error:
            self.result.notes.append(f"could not run with optimization on: {error.message}")
        return None

    def repeat(self) -> None:
        """Repeat the optimized run in the same session, once; a difference becomes a finding."""
        if self.runtime is None or self.optimized is None or self._repeated:
            return
        self._repeated = True
        # the session of the first run is still open, and holds its feeds
        again = self.runtime.run(list(self.feeds), self.targets).values
        differing = [name for name in self.targets if not same(self.optimized[name], again[name])]
        if differing:
            shown = joined(differing[:3])
            self.result.add_finding("random", f"two runs on the same inputs differ at {shown}")

    def check_threads(self, wrong: Sequence[str]) -> None:
        """Add a finding if another number of threads changes the outputs by as much as they mismatch."""
        # only small errors, and only if all outputs have them
        slight = [name for name in wrong if _is_slight(self.judge.outputs.get(name))]
        if self.runtime is None or self.optimized is None or not slight or len(slight) < len(wrong):
            return
        options = self.runtime.options
        with self.runtime.under(replace(options, threads=1 if options.threads != 1 else 2)):
            other = run(self.index, self.feeds, self.runtime, slight)
        for name in slight:
            noise = apart(self.optimized[name], other[name])
            error = apart(self.optimized[name], self.judge.references.read(name))
            # NaN, too: an error that is no number is no noise
            if not error <= _NOISE * noise:
                return
        because = f"another number of threads changes {', '.join(map(repr, slight[:3]))} by a similar amount"
        self.result.add_finding("rounding", because)

    def check_effect(self, observer: Observer, optimized: bool) -> None:
        """Compare the outputs with those that follow from the observed values."""
        unobserved = (self.optimized if optimized else None) or self.unoptimized
        names = [name for name in self.targets if name in unobserved]
        observed = observer.fetch(names)
        differing = [name for name in names if not same(observed[name], unobserved[name])]
        if not differing:
            return
        shown = joined(differing[:3])
        # which outputs mismatch: as they follow from observed values, and in the run without
        verdicts = [
            [name for name in names if not self.judge.good(name, values[name])]
            for values in (observed, unobserved)
        ]
        if verdicts[0] == verdicts[1]:
            self.result.notes.append(f"observing inner values changes the last bits of {shown}")
        else:
            because = f"observing inner values changes whether {shown} agrees"
            self.result.add_finding("observer effect", because)


def same(a: RunValue, b: RunValue) -> bool:
    """Return whether two values are equal, bit for bit."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if not is_array(a) or not is_array(b):
        return a is b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool((a == b).all()) if a.dtype == object else a.tobytes() == b.tobytes()


def _is_slight(comparison: Comparison | None) -> bool:
    """Return whether the error is small enough for rounding."""
    if comparison is None or comparison.reason != "values" or comparison.worst is None:
        return False
    return comparison.worst.difference <= _SLIGHT * comparison.worst.allowed
