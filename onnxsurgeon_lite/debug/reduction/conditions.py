"""What a failure is, and why a model fails: questions to a runtime, to ONNX's checker, to a program, to a function.

`Failing` is a model and its feeds, which a reduction makes smaller; `SeenValues` are the values that a run of it sees.
"""

import os
import re
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto

from onnxsurgeon_lite.debug.bisection.bisect import Search, bisect
from onnxsurgeon_lite.debug.computed_references import computed_references
from onnxsurgeon_lite.debug.journal import digest
from onnxsurgeon_lite.debug.result import Culprit
from onnxsurgeon_lite.errors import (
    EditError,
    RuntimeCrash,
    RuntimeFailure,
    RuntimeTimeout,
    SurgeonError,
    UsageError,
)
from onnxsurgeon_lite.graph import GraphIndex, symbols_of
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.matching.judge import ValueRule
from onnxsurgeon_lite.model import Model, movable, save, walk
from onnxsurgeon_lite.names import calling, command, counted, function_at
from onnxsurgeon_lite.passes import Clean, Pass, Pipeline
from onnxsurgeon_lite.runtime.feeds import Feeds, Recipe, as_declared, make_feeds
from onnxsurgeon_lite.runtime.options import ORT, RuntimeOptions, words_of
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.script import run_to_end
from onnxsurgeon_lite.runtime.session import Runtime, run_model
from onnxsurgeon_lite.surgery import names_in
from onnxsurgeon_lite.system import TemporaryFolder, ending
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance, gap
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    RunValue,
    RunValues,
    Stored,
    arrays_in,
    has_floats,
    type_of,
)
from onnxsurgeon_lite.tensors.references import ReferenceSet, write_test_data

MANY = 1 << 28  # bytes of constants: it takes long to compute with them


@dataclass(frozen=True, order=True)
class Extent:
    """How large a model is: nodes, those of bodies and functions included, and bytes of constants and feeds."""

    nodes: int
    bytes: int

    def __str__(self) -> str:
        return f"{counted(self.nodes, 'node')}, {self.bytes:,} bytes"


@dataclass(frozen=True)
class Failing:
    """A model with feeds that may fail.

    Attributes:
        steps: the edits that made the model of the first one.
        named: the names of the first one, which messages about smaller ones may lack.
        blind: whether the condition sees no feeds; then they are no part of the key.
    """

    model: Model
    feeds: Feeds
    steps: tuple[Pass, ...] = ()
    named: frozenset[str] = frozenset()
    blind: bool = False

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of this model and of the first one."""
        # a message may still name what an edit left out
        own = names_in(walk.graphs(self.model.proto)).union(self.index.node_names)
        return self.named.union(own)

    @cached_property
    def index(self) -> GraphIndex:
        """The model's main graph."""
        return GraphIndex.of(self.model)

    @cached_property
    def key(self) -> str:
        """A digest of what the condition sees."""
        return digest(self.model.encoded(), "", {} if self.blind else self.feeds)

    @cached_property
    def extent(self) -> Extent:
        """How large it is."""
        proto = self.model.proto
        nodes = sum(len(holder.node) for holder in walk.holders(proto))
        weights = sum(dtypes.byte_count(t.data_type, t.dims) for t in walk.tensors(proto))
        fed = sum(array.nbytes for value in self.feeds.values() for array in arrays_in(value))
        return Extent(nodes, weights + fed)

    @property
    def constants(self) -> dict[str, TensorProto]:
        """The dense initializers of the main graph."""
        found = self.index.initializers.items()
        return {name: each for name, each in found if isinstance(each, TensorProto)}

    def edited(self, step: Pass, values: RunValues | None = None) -> "Failing":
        """Return the model after an edit, without what no output needs, and its feeds.

        Args:
            values: feeds of inputs that are new, or that change.

        Raises:
            EditError: nothing changes, or an input has no feed.
            FeedsError: a feed does not fit its input.
        """
        # Clean drops what no output needs any more: it counts as part of the edit
        result = Pipeline((step, Clean())).apply(self.model)
        if not result.changed:
            raise EditError(f"{step.name} changes nothing")
        feeds = Feeds()
        index = GraphIndex.of(result.model)
        # each input needs a feed: a new one, or the one that it had
        for name in index.required_inputs:
            value = (values or {}).get(name, self.feeds.get(name))
            if value is None:
                raise EditError(f"input {name!r} has no feed")
            feeds[name] = value
            # a new input of unknown type gets that of its feed
            if index.inputs[name].type.WhichOneof("value") is None:
                index.inputs[name].type.CopyFrom(type_of(value))
        steps = self.steps + (step, Clean())
        feeds = as_declared(index, feeds)
        named = self.named or self.names
        return Failing(result.model, feeds, steps, named, self.blind)

    def fed(self, name: str, value: Array) -> "Failing":
        """Return the model with another feed."""
        return replace(self, feeds=self.feeds | {name: value})


@dataclass
class SeenValues:
    """Values of a model, computed when they are asked for: they take the place of nodes that are left out.

    What is downstream of the failure cannot be computed: it is made from its type. Where references are what the model
    should compute, only they take the place of nodes.

    Attributes:
        runtime: computes them without optimization. recipe: how others are made.
        references: what is right for the model's values, where that is stored.
        any_fit: the failure needs no certain values: none is computed while that would read many weights.
    """

    runtime: Runtime
    recipe: Recipe
    references: ReferenceSet | None = None
    any_fit: bool = False
    _key: str = ""
    _known: dict[str, RunValue] = field(default_factory=dict)

    def values(self, failing: Failing, places: Mapping[str, str], graph: GraphIndex) -> Feeds:
        """Return values for inputs of a graph.

        Args:
            places: name -> where the value is in the model; in a body it has its path.
            graph: has the types of the names.

        Raises:
            FeedsError: a value can be neither computed nor made.
        """
        found = self.computed(failing, places.values())
        proto = ModelProto()
        feeds = Feeds()
        graph.learn_types(places)
        for name, place in places.items():
            # not computed: it is declared as an input of an empty model below, and made from its type
            if (value := found.get(place)) is None:
                if self.references is not None:
                    raise EditError(f"{place!r} has no reference")
                proto.graph.input.append(graph.value_info(name))
            else:
                feeds[name] = value
        # fills and sizes may belong to inputs that are not among these
        made = GraphIndex.of(Model(proto))
        known = {""}.union(symbols_of(made.inputs.values()))
        dims = {name: size for name, size in self.recipe.dims.items() if name in known}
        return feeds | make_feeds(made, Recipe(self.recipe.seed, dims))[0]

    def computed(self, failing: Failing, names: Iterable[str]) -> dict[str, RunValue]:
        """Return values of a run, or what is known without it where it fails."""
        if (stored := self.references) is not None:
            return {name: stored.read(name) for name in names if name in stored}
        if self.any_fit and failing.extent.bytes > MANY:
            return {}
        # the values are those of one model; asking about another drops them
        if self._key != failing.key:
            self._key, self._known = failing.key, {}
        try:
            missing = [name for name in names if name not in self._known]
            if missing:
                self._known |= run(failing.index, failing.feeds, self.runtime, missing)
        except (RuntimeCrash, RuntimeTimeout):
            self.runtime.restart()
        except SurgeonError:
            pass
        return self._known


# Parts of messages: `process died: SIGSEGV`; quoted names; ` (node ...)`; words; numbers with or without exponent.
_DIED = re.compile(r"process died: (\w+)")
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`")
_PLACE = re.compile(r" \(node [^()]*\)")
_WORD = re.compile(r"[^\s'\"`()\[\]{},;=<>]+")
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?(e[+-]?\d+)?")

MODEL, FEEDS = "model.onnx", "test_data_set_0"  # files of the folder that a program gets
KINDS = ("stops", "crash", "hang", "error", "nan", "inf", "mismatch", "invalid", "slower")


@dataclass(frozen=True)
class Reason:
    """Why a model fails; two are equal when they are the same failure.

    Attributes:
        kind: `crash`, `hang`, `error`, `mismatch`, `nan`, `inf`, `invalid`, `exit code 3`, or what a function
            says.
        text: what else is the same: the signal, the message without names and numbers, the culprit's verdict.
        said: the message as it was.
    """

    kind: str
    text: str = ""
    said: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


def reason_of(error: RuntimeFailure, names: Collection[str]) -> Reason:
    """Return why a run failed."""
    if isinstance(error, RuntimeTimeout):
        return Reason("hang", "", error.message)
    if isinstance(error, RuntimeCrash):
        signal = _DIED.search(error.message)
        return Reason("crash", signal[1] if signal else "", error.message)
    return Reason("error", alike(error.message, names), error.message)


def alike(message: str, names: Collection[str]) -> str:
    """Return what messages about one failure share: no names, no numbers, no places."""
    # "Gemm node 'fc1' failed: 3 != 4" -> "Gemm node '_' failed: # != #"
    text = _QUOTED.sub("'_'", _PLACE.sub("", message))
    text = _WORD.sub(lambda word: "_" if word[0].strip(".:") in names else word[0], text)
    return " ".join(_NUMBER.sub("#", text).split())


_NOT_FINITE = {"nan": np.isnan, "inf": np.isinf}

Ask = Callable[[Failing], Reason | None]
"""Why a model fails; None where it does not."""

Fails = Callable[[Model, Feeds], object]
"""A user's own condition; it returns True, or a text that says why the model fails, else nothing."""

_SPINS = "session.intra_op.allow_spinning", "1"
_RUNS = 7  # the fastest counts
_MEASURED = 1.0  # seconds that two settings are compared, and at least once
_LEAST = 2e-3  # seconds: in less, sending and receiving is what takes time, and it varies with what else runs


@dataclass
class Condition:
    """A failure that a runtime shows, in a process of its own.

    Attributes:
        start: returns a runtime that ends with the call.
        usual: the settings that may fail. other: those that a mismatch is one with.
        references: stored values that a mismatch is one with instead; their names must stay.
        kind: of `KINDS`. pattern: a regular expression that the message must have; of `slower`, how many times.

    Raises:
        UsageError: there is no such condition.
    """

    start: Callable[[RuntimeOptions], Runtime]
    usual: RuntimeOptions
    other: RuntimeOptions
    tolerance: Tolerance | None
    kind: str
    pattern: str = ""
    references: ReferenceSet | None = None
    _started: dict[RuntimeOptions, Runtime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_regex(self.pattern)
        if self.kind not in KINDS:
            hint = f"give {', '.join(KINDS)}, or --command PROGRAM"
            raise UsageError(f"{self.kind!r} is no condition", hint)
        if self.kind == "slower" and not _NUMBER.fullmatch(self.pattern):
            raise UsageError(f"slower={self.pattern} says no ratio", "write slower=2.5")

    def __call__(self, failing: Failing) -> Reason | None:
        """Return why a model fails; another failure than the one that is asked for is none."""
        try:
            reason = self._seen(failing)
        except RuntimeFailure as error:
            reason = reason_of(error, failing.names)
        # `pattern` of `slower` is a ratio, no regular expression
        if reason is None or self.kind != "slower" and not re.search(self.pattern, reason.said):
            return None
        return reason if self.kind in ("stops", reason.kind) else None

    def _seen(self, failing: Failing) -> Reason | None:
        if self.kind == "invalid":
            problem = "".join(check(failing.model, full=True).problem.splitlines()[:1])
            return Reason("invalid", alike(problem, failing.names), problem) if problem else None
        if self.kind == "slower":
            ratio = self._ratio(failing)
            said = f"{ratio:.3g} times as long"
            return Reason("slower", "", said) if ratio >= float(self.pattern) else None
        if self.kind == "mismatch":
            return self._mismatch(failing)
        values = self.ran(failing, self.usual)
        if found := _NOT_FINITE.get(self.kind):
            # NaN in the feeds explains NaN in the outputs: no failure
            fed, made = (
                any(found(a).any() for a in _floats(held)) for held in (failing.feeds, values)
            )
            return Reason(self.kind) if made and not fed else None
        return None

    def _mismatch(self, failing: Failing) -> Reason | None:
        """Return how an output differs, and the verdict on the first culprit: of another one it is another failure."""
        for name, _, compared in self.compared(failing):
            if not compared.match:
                text = compared.reason
                said = f"{name!r}: {gap(compared)}"
                # The verdict is part of the reason: while the model shrinks, the same node must be wrong for the same
                # cause.
                for culprit in self._culprits(failing)[:1]:
                    said += f"; culprit {culprit.op_type} {culprit.id}"
                    for finding in culprit.findings[:1]:
                        text, said = f"{text}, {finding.verdict}", f"{said}: {finding.because}"
                return Reason("mismatch", text, said)
        return None

    def compared(self, failing: Failing) -> Iterator[tuple[str, RunValue, Comparison]]:
        """Yield each tensor of the outputs with what it should be, as far as that is known."""
        values = self.ran(failing, self.usual)
        rule = ValueRule.of(failing.index, self.tolerance)
        if self.references is not None:
            rule = rule.for_references(self.references)
        # stored references, or the same model under the other settings
        expected: RunValues = self.stored(failing) or self.ran(failing, self.other)
        for name, value in expected.items():
            for compared in rule.each(name, values[name], value, ()).values():
                yield name, value, compared

    def stored(self, failing: Failing) -> dict[str, Stored]:
        """Return the stored references of the outputs.

        Raises:
            EditError: no output has one.
        """
        known = self.references
        found = {n: known.read(n) for n in failing.index.outputs if known and n in known}
        if known is not None and not found:
            raise EditError("no output has a reference")
        return found

    def _culprits(self, failing: Failing) -> list[Culprit]:
        """Return where the sides part; none where that cannot be searched."""
        sides = list[tuple[Runtime, Runtime | None]]()
        for options in (self.usual, self.other):
            # as `osl.bisect` does: each side without optimization, and with it where the runtime shows its graph
            plain = self.started(replace(options, opt="none", lean=True))
            optimized = options.opt != "none" and plain.abilities.optimized_graph
            sides.append((plain, self.started(options) if optimized else None))
        # what each side is called in verdicts: its runtime or operators, else `opt=all`
        named = [(words_of(o) or ["", f"opt={o.opt}"])[1] for o in (self.other, self.usual)]
        search = Search(self.tolerance)
        feeds = failing.feeds
        with ExitStack() as stack, suppress(SurgeonError):
            if (right := self.references) is None:
                search = replace(search, settings=True, sides=tuple(named))
                computed = computed_references(failing.index, feeds, *sides[1])
                right = stack.enter_context(computed)
            return bisect(failing.model, right, feeds, *sides[0], search).culprits
        return []

    def _ratio(self, failing: Failing) -> float:
        """Return how many times as long a model takes as with the other settings, on this machine."""
        # in turns and for a while: what else runs here can slow a small model down by any factor
        taken = list[float]()
        end = time.perf_counter() + _MEASURED
        while not taken or time.perf_counter() < end:
            taken += (self._seconds(failing, side) for side in (self.usual, self.other))
        usual, other = min(taken[::2]), min(taken[1::2])
        return usual / other if usual >= _LEAST else 0.0

    def _seconds(self, failing: Failing, options: RuntimeOptions) -> float:
        """Return how long the fastest of some runs takes, after a first one."""
        # the first run opens the session and warms up
        self.ran(failing, options)
        runtime = self._started[options]
        taken = list[float]()
        for _ in range(_RUNS):
            start = time.perf_counter()
            runtime.run(list(failing.feeds), list(failing.index.outputs))
            taken.append(time.perf_counter() - start)
        return min(taken)

    def started(self, options: RuntimeOptions) -> Runtime:
        """Return a runtime of some options, started once."""
        if options not in self._started:
            # what is timed spins, as onnxruntime does where nothing is set
            timed = self.kind == "slower" and options.runtime == ORT
            settings = (_SPINS,) * timed + options.settings
            self._started[options] = self.start(replace(options, settings=settings))
        return self._started[options]

    def ran(self, failing: Failing, options: RuntimeOptions) -> dict[str, RunValue]:
        """Run a model; a process that died or hangs is replaced."""
        runtime = self.started(options)
        runtime.about()  # its start takes none of the model's time
        try:
            return run_model(failing.model, failing.feeds, runtime=runtime)
        except (RuntimeCrash, RuntimeTimeout):
            runtime.restart()
            raise


def _floats(values: RunValues) -> list[Array]:
    arrays = list(chain.from_iterable(map(arrays_in, values.values())))
    return [array for array in arrays if has_floats(array)]


def _require_regex(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from error


@dataclass(frozen=True)
class FailingProgram:
    """A command that fails on a model.

    Attributes:
        command: `{model}` is the model's file, `{feeds}` a folder `test_data_set_0`.
        says: what its output holds when it fails, a regular expression.
        code: its exit code when it fails; any but 0 by default, any at all with `says`.
        timeout: seconds after which it hangs.

    Raises:
        UsageError: the command names no model, or the regular expression is none.
    """

    command: str
    says: str = ""
    code: int | None = None
    timeout: float = 60.0

    def __post_init__(self) -> None:
        _require_regex(self.says)
        if "{model}" not in self.command:
            hint = f"write {command('--command', self.command + ' {model}')}"
            raise UsageError(f"command {self.command!r} has no {{model}}", hint)
        try:
            self.words(Path())
        except ValueError as error:  # a quote that is open
            raise UsageError(f"command {self.command!r} cannot be split: {error}") from error

    def words(self, folder: Path) -> list[str]:
        """Return the words of the command for the files in a folder; files that are there have their whole path."""
        model, feeds = str(folder / MODEL), str(folder / FEEDS)
        words = shlex.split(self.command)  # first: the folder's name may have spaces
        words = [str(Path(word).absolute()) if os.path.isfile(word) else word for word in words]
        return [word.replace("{model}", model).replace("{feeds}", feeds) for word in words]

    def __call__(self, failing: Failing) -> Reason | None:
        """Return why the program fails on a model; None where it does not."""
        with TemporaryFolder() as name:
            save(failing.model, Path(name, MODEL), movable(failing.model))
            write_test_data(Path(name, FEEDS), failing.feeds, {})
            try:
                code, printed = run_to_end(self.words(Path(name)), self.timeout)
            except TimeoutError:
                return Reason("hang", f"longer than {self.timeout:g} s")
            except OSError as error:
                raise UsageError(f"{self.command!r} cannot be run: {error}") from error
        output = printed.decode(errors="replace").replace(name, "")
        found = re.search(self.says, output)
        # No failure: the pattern is not in the output, nothing says what a failure is and the code is 0, or another
        # code.
        if found is None or not (self.says or code) or self.code not in (None, code):
            return None
        kind = ending(code)
        said = "".join(output.strip().splitlines()[-1:])
        # what must stay the same: what the pattern matched, else the last line
        same = found[0] if self.says else said
        if self.says:  # the whole line, which names more
            said = output[output.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0] or same
        return Reason(kind, "" if self.code else alike(same, failing.names), said)


@dataclass(frozen=True)
class FailingFunction:
    """A user's function; what it raises is an error of the call."""

    function: Fails

    @classmethod
    def of(cls, given: str | Fails) -> "FailingFunction":
        """Return that of a function, or of `FILE.py:function`."""
        return cls(function_at(given, "condition") if isinstance(given, str) else given)

    def __call__(self, failing: Failing) -> Reason | None:
        """Return why a model fails; None where it does not."""
        with calling(getattr(self.function, "__name__", "fails")):
            said = self.function(failing.model, failing.feeds)
        text = "" if said is True else alike(str(said), failing.names)
        return Reason("function", text, str(said)) if said else None


def another(ask: Ask) -> Ask:
    """Return a condition that can be asked at the same time, by runtimes of its own."""
    return replace(ask, _started={}) if isinstance(ask, Condition) else ask
