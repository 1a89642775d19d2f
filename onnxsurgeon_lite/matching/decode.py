"""A language model that decodes the text of another, or of a recording: where their greedy tokens differ first."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from onnxsurgeon_lite.errors import FeedsError, UsageError
from onnxsurgeon_lite.graph.index import GraphIndex, dims_of, known_size
from onnxsurgeon_lite.matching.samples import carried_by
from onnxsurgeon_lite.runtime.attention_feeds import cache_sizes
from onnxsurgeon_lite.runtime.feeds import Feeds, feeds_from
from onnxsurgeon_lite.runtime.run import opened, run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import HIDDEN, Progress, Shown, quiet
from onnxsurgeon_lite.tensors.dtypes import Array, DType, Stored, Wide, numpy_dtype, present
from onnxsurgeon_lite.tensors.references import ReferenceSet

_MASK, _POSITIONS = "attention_mask", "position_ids"


@dataclass(frozen=True)
class DecodeStep:
    """What both models say after the same tokens.

    Attributes:
        token: the model's; wanted: the reference's, which both are fed next.
        margin: how much the reference prefers its token to the model's, or to the next one: a difference of logits.
        kl: the divergence of the model's distribution from the reference's, in nats.
    """

    number: int
    token: int
    wanted: int
    margin: float
    kl: float

    @property
    def agrees(self) -> bool:
        return self.token == self.wanted and bool(np.isfinite(self.kl))


@dataclass(frozen=True, repr=False)
class DecodeComparison(Shown):
    """Greedy decoding of two models side by side; both are fed the tokens of the reference.

    Attributes:
        prompt: the tokens before the first step.
        divergent: the number of the first step whose tokens differ; None without one.
        agreement: the share of steps whose tokens agree.
        feeds: what the model was fed at the divergent step.
    """

    prompt: list[int]
    steps: list[DecodeStep]
    divergent: int | None
    agreement: float
    feeds: Mapping[str, Array] = field(default_factory=dict, metadata=HIDDEN)

    @property
    def match(self) -> bool:
        """True when every greedy token agrees."""
        return self.divergent is None


@dataclass
class Decoder:
    """A model that reads tokens, and carries its cache from step to step.

    Attributes:
        carry: input -> the output of the step before that it gets.
        held: what those inputs are fed next.
        passed: input -> what another model gives it, the same at each step.
    """

    index: GraphIndex
    runtime: Runtime
    logits: str
    tokens: str
    carry: Mapping[str, str]
    passed: Mapping[str, Array]
    held: dict[str, Array] = field(default_factory=dict)
    count: int = 0

    @classmethod
    def of(
        cls,
        index: GraphIndex,
        runtime: Runtime,
        decode: Mapping[str, str],
        sequence: Mapping[str, str],
        passed: Mapping[str, Array],
    ) -> "Decoder":
        """Return a decoder whose cache is empty.

        Raises:
            UsageError: nothing says what an input is fed at the next step.
        """
        if len(decode) != 1:
            raise UsageError("--decode names one output and one input", "such as logits=input_ids")
        # input of the tokens -> output with their logits
        ((tokens, logits),) = carried_by(index, decode).items()
        found = cls(index, runtime, logits, tokens, carried_by(index, sequence), passed)
        if twice := sorted(found.carry.keys() & passed):
            raise UsageError(
                f"input {twice[0]!r} is fed by --sequence and by a stage", "leave out one of them"
            )
        known = {tokens, _MASK, _POSITIONS, *found.carry, *passed, *index.initializers}
        # the runs can go on only if every input is known: tokens, mask, positions, caches, what another model
        # gives, and defaults
        strange = [name for name in index.inputs if name not in known]
        if strange:
            raise UsageError(
                f"input {strange[0]!r} has no value for the next step",
                "pass an output on with --sequence OUTPUT=INPUT, or freeze it: onnxdbg edit freeze",
            )
        found.held = {name: found._empty(name) for name in found.carry}
        return found

    @cached_property
    def run(self) -> Callable[[Feeds], Mapping[str, object]]:
        return opened(self.index, self.runtime)

    def feeds(self, tokens: Array) -> dict[str, Array]:
        """Return the feeds of the next step: its tokens, a mask of ones, positions that go on, the cache.

        Raises:
            FeedsError: there is not one text.
        """
        if tokens.ndim != 2 or tokens.shape[0] != 1 or not tokens.size:
            raise FeedsError(
                f"{self.tokens!r} is fed {list(tokens.shape)}; one text is decoded",
                "feed it as [1, N]",
            )
        count = self.count + tokens.size
        found = {**self.passed, self.tokens: tokens.astype(self._dtype(self.tokens))}
        if _MASK in self.index.inputs:
            found[_MASK] = np.ones((1, count), self._dtype(_MASK))
        if _POSITIONS in self.index.inputs:
            positions = np.arange(self.count, count, dtype=self._dtype(_POSITIONS))
            found[_POSITIONS] = positions[None]
        return {**found, **self.held}

    def step(self, feeds: Mapping[str, Array]) -> Wide:
        """Run one step; return the logits after its last token, and keep the cache."""
        made = self.run(dict(feeds))
        self.count += feeds[self.tokens].size
        self.held = {name: np.asarray(made[output]) for name, output in self.carry.items()}
        return _after_last(made[self.logits], self.logits)

    def _dtype(self, name: str) -> "DType":
        return numpy_dtype(self.index.inputs[name].type.tensor_type.elem_type)

    def _empty(self, name: str) -> Array:
        """Return an empty cache; one that slides has its whole window, of zeros."""
        sizes = cache_sizes(self.index)
        dims = dims_of(self.index.inputs[name].type)
        # sizes that the graph fixes (a cache that slides has its whole window); else the batch is 1, and
        # nothing is cached yet
        shape = [
            known_size(dim) or sizes.get(dim.dim_param, int(not at)) for at, dim in enumerate(dims)
        ]
        return np.zeros(shape, self._dtype(name))


def passed_on(
    stages: Iterable[Mapping[str, str]],
    indexes: Sequence[GraphIndex],
    given: ReferenceSet | None,
    runtime: Runtime,
) -> dict[str, Array]:
    """Run all models of a folder but the last; return what that one is fed by the others.

    Args:
        stages: what each model passes on: its output, or what is given -> input of the next one.

    Raises:
        FeedsError: an input is neither given nor passed on.
        UnknownNameError: a stage passes on what there is not, or to an input that there is not.
    """
    known, passed = dict[str, Stored](), dict[str, Array]()
    if given is not None and stages:
        known = {name: given.read(name) for name in given}
    for links, index, following in zip(stages, indexes, indexes[1:], strict=False):
        known |= present(run(index, feeds_from(index, ReferenceSet.of(known)), runtime))
        names = carried_by(following, links, known)
        passed = {name: np.asarray(known[source]) for name, source in names.items()}
        known |= passed
    return passed


def _after_last(stored: object, name: str) -> Wide:
    """Return the logits after the last token, of logits [batch, tokens, vocabulary]."""
    logits = np.asarray(stored)
    if logits.ndim not in (2, 3) or not logits.shape[-1]:
        raise FeedsError(
            f"{name!r} has shape {list(logits.shape)}, no logits of tokens",
            "name them: --decode OUTPUT=INPUT",
        )
    return np.asarray(logits.reshape(-1, logits.shape[-1])[-1], np.float64)


Step = tuple[Array, Wide]
"""The tokens that a step is fed, and the logits after the last of them."""


def greedy(reference: Decoder, prompt: Array) -> Iterator[Step]:
    """Yield the steps of a model that is fed its own tokens, without end."""
    while True:
        logits = reference.step(reference.feeds(prompt))
        yield prompt, logits
        prompt = np.array([[np.argmax(logits)]])


def recorded(steps: Iterable[ReferenceSet], tokens: str, logits: str) -> Iterator[Step]:
    """Yield the steps of a recording, which begins with the prompt and an empty cache.

    Raises:
        FeedsError: a step is missing: a mask is for more tokens than were recorded.
    """
    count = 0
    for number, step in enumerate(steps):
        fed = np.asarray(step.read(tokens))
        count += fed.shape[-1]
        seen = np.asarray(step.read(_MASK)).shape[-1] if _MASK in step else count
        if seen != count:
            raise FeedsError(
                f"step {number} has seen {seen} tokens, and the recording has {count}",
                "record from the prompt on, with an empty cache",
            )
        yield fed, _after_last(step.read(logits), logits)


def decode(
    model: Decoder, reference: Iterable[Step], steps: int, progress: Progress = quiet
) -> DecodeComparison:
    """Decode with a model; each step feeds it the tokens of the reference.

    Raises:
        FeedsError: there is not one text, or the logits are of another vocabulary.
    """
    found, kept = list[DecodeStep](), dict[str, Array]()
    text = list[int]()
    # both go on with the reference's token, so a wrong token does not change all later steps
    for number, (tokens, wanted) in zip(range(steps), reference, strict=False):
        progress(f"step {number} of {steps}")
        text = text or tokens[0].tolist()
        fed = model.feeds(tokens)
        step = _compared(number, model.step(fed), wanted)
        # of the first step that differs, so that the caller can bisect it
        if not step.agrees and not kept:
            kept = fed
        found.append(step)
    off = [step.number for step in found if not step.agrees]
    agreement = 1 - len(off) / len(found)
    return DecodeComparison(text, found, off[0] if off else None, agreement, kept)


def _compared(number: int, logits: Wide, wanted: Wide) -> DecodeStep:
    if logits.shape != wanted.shape:
        raise FeedsError(
            f"the logits are of {logits.size} tokens, those of the reference of {wanted.size}"
        )
    token, right = int(np.argmax(logits)), int(np.argmax(wanted))
    # a token that is masked has the logit -inf: exp(-inf) is 0, and `where` leaves -inf - -inf out
    with np.errstate(all="ignore"):
        one, other = _log_softmax(wanted), _log_softmax(logits)
        kl = float(np.sum(np.exp(one) * (one - other), where=one > -np.inf))
    # where both prefer the same token, the margin is to the runner-up
    other_token = token if token != right else int(np.argsort(wanted)[-2:][0])
    return DecodeStep(number, token, right, float(wanted[right] - wanted[other_token]), kl)


def _log_softmax(logits: Wide) -> Wide:
    moved = logits - logits.max()
    return np.asarray(moved - np.log(np.exp(moved).sum()))
