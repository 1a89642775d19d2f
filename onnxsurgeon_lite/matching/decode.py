"""A language model that decodes the text of another, or of a recording: where their greedy tokens differ first."""

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import ValueInfoProto

from onnxsurgeon_lite.errors import FeedsError, UsageError
from onnxsurgeon_lite.graph.index import GraphIndex, dims_of
from onnxsurgeon_lite.matching.samples import empty
from onnxsurgeon_lite.matching.stages import (
    ONCE,
    PROMPT,
    STEP,
    TOKEN,
    Stage,
    cache_of,
    carried_in,
    links_of,
)
from onnxsurgeon_lite.runtime.attention_feeds import cache_sizes
from onnxsurgeon_lite.runtime.feeds import feeds_from
from onnxsurgeon_lite.runtime.run import Opened, opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import HIDDEN, Progress, Shown, quiet
from onnxsurgeon_lite.tensors.dtypes import Array, Stored, Wide, numpy_dtype, present
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class DecodingModel:
    """One of the models that decode.

    Attributes:
        links: input of a later model -> the output that it gets.
    """

    stage: Stage
    session: Opened
    links: Mapping[str, str]


@dataclass
class Decoder:
    """Models that read tokens, and carry their cache from step to step.

    Attributes:
        carry: input -> the output of the step before that it gets.
        passed: input -> what other models gave it, the same at each step.
        inputs: of all models.
        held: what the inputs of `carry` are fed next. fed: what the models were fed last.
    """

    models: Sequence[DecodingModel]
    logits: str
    tokens: str
    carry: Mapping[str, str]
    passed: Mapping[str, Array]
    inputs: Mapping[str, ValueInfoProto]
    held: dict[str, Array] = field(default_factory=dict)
    fed: dict[str, Array] = field(default_factory=dict)
    count: int = 0

    @classmethod
    def of(
        cls,
        models: Sequence[DecodingModel],
        passed: Mapping[str, Array],
        decode: Mapping[str, str],
        sequence: Mapping[str, str],
    ) -> "Decoder":
        """Return a decoder whose cache is empty.

        Raises:
            UsageError: nothing says what an input is fed at the next step.
        """
        if len(decode) != 1:
            raise UsageError("--decode names one output and one input", "such as logits=input_ids")
        indexes = [model.session.index for model in models]
        # input of the tokens -> output with their logits
        ((tokens, logits),) = carried_in(indexes, decode).items()
        carry = carried_in(indexes, sequence or cache_of(model.stage for model in models))
        if not carry:
            raise UsageError(
                "nothing says which outputs are the cache of the next step",
                "add --sequence 'present.*=past_key_values.*'",
            )
        if twice := sorted(carry.keys() & passed):
            raise UsageError(
                f"input {twice[0]!r} is fed by --sequence and by a stage", "leave out one of them"
            )
        inputs = ChainMap(*(index.inputs for index in indexes))
        found = cls(models, logits, tokens, carry, passed, inputs)
        # the prompt begins with empty caches; a token gets what the prompt made
        made = found._require_fed(PROMPT, carry)
        found._require_fed(TOKEN, [name for name, output in carry.items() if output in made])
        for model in found._at(PROMPT):
            index = model.session.index
            for name in carry.keys() & index.inputs:
                # the batch is 1; a cache that slides has its whole window, others are empty
                batch = {dim.dim_param: 1 for dim in dims_of(inputs[name].type)[:1]}
                found.held[name] = empty(index, name, {**batch, **cache_sizes(index)})
        return found

    def _at(self, when: str) -> list[DecodingModel]:
        """Return the models that run at the prompt, or at a token."""
        return [model for model in self.models if model.stage.runs in (when, STEP)]

    def _require_fed(self, when: str, cached: Iterable[str]) -> set[str]:
        """Refuse an input that has no value; return all outputs."""
        known = {self.tokens, _MASK, _POSITIONS, *cached, *self.passed}
        made = set[str]()
        # the runs can go on only if every input is known: tokens, mask, positions, caches, what another model
        # gives, and defaults
        for model in self._at(when):
            strange = [name for name in model.session.index.required_inputs if name not in known]
            if strange:
                raise UsageError(
                    f"input {strange[0]!r} has no value for the next step",
                    "pass an output on with --sequence OUTPUT=INPUT, or freeze it: onnxdbg edit freeze",
                )
            known.update(model.links)
            made.update(model.session.index.outputs)
        # each step decodes a token
        if self.logits not in made:
            raise UsageError(
                f"no model that runs at the {when} makes {self.logits!r}",
                'write a [[stage]] with runs = "prompt", and one with runs = "token"',
            )
        return made

    def step(self, tokens: Array) -> Wide:
        """Run one step; return the logits after its last token, and keep the cache.

        The models are fed its tokens, a mask of ones, positions that go on, the cache, and what others made.

        Raises:
            FeedsError: there is not one text.
        """
        if tokens.ndim != 2 or tokens.shape[0] != 1 or not tokens.size:
            raise FeedsError(
                f"{self.tokens!r} is fed {list(tokens.shape)}; one text is decoded",
                "feed it as [1, N]",
            )
        count = self.count + tokens.size
        known: dict[str, Array] = {
            **self.passed,
            **self.held,
            self.tokens: tokens,
            _MASK: np.ones((1, count)),
            _POSITIONS: np.arange(self.count, count)[None],
        }
        # in the dtypes that the models declare; what none reads is not fed
        for name in {self.tokens, _MASK, _POSITIONS} & self.inputs.keys():
            known[name] = known[name].astype(
                numpy_dtype(self.inputs[name].type.tensor_type.elem_type)
            )
        # for the caller, who may bisect one of the models with it
        self.fed = {}
        # an output may be read by a later model, under its own name or another
        for model in self._at(TOKEN if self.count else PROMPT):
            fed = {name: known[name] for name in model.session.index.inputs if name in known}
            self.fed |= fed
            made = {name: np.asarray(value) for name, value in model.session({**fed}).items()}
            known |= made | {name: made[output] for name, output in model.links.items()}
        self.count = count
        # what this step did not make stays as it is: keys of an encoder, which the prompt alone computes
        self.held |= {name: known[output] for name, output in self.carry.items() if output in known}
        return _after_last(known[self.logits], self.logits)


def begin(
    stages: Sequence[Stage],
    indexes: Sequence[GraphIndex],
    known: dict[str, Stored],
    start: Callable[[], Runtime],
) -> tuple[list[DecodingModel], dict[str, Array]]:
    """Run the models of a folder that run once; return the others, and what those are fed at each step.

    Args:
        known: what is given. start: gives the runtime of a model.

    Raises:
        FeedsError: an input is neither given nor passed on.
        UnknownNameError: a stage passes on what there is not, or to an input that there is not.
    """
    passed, models = dict[str, Array](), list[DecodingModel]()
    # in their order: a later one may read what an earlier one gives
    for number, (stage, index) in enumerate(zip(stages, indexes, strict=True), 1):
        session, later = opened(index, start()), indexes[number:]
        # those that decode keep their session
        if stage.runs != ONCE:
            models.append(DecodingModel(stage, session, links_of(stage, index, later, ())))
            continue
        known |= present(session(feeds_from(index, ReferenceSet.of(known))))
        for name, source in links_of(stage, index, later, known).items():
            passed[name] = np.asarray(known[source])
        known |= passed
    return models, passed


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
        logits = reference.step(prompt)
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
        step = _compared(number, model.step(tokens), wanted)
        # of the first step that differs, so that the caller can bisect it
        if not step.agrees and not kept:
            kept = model.fed
        found.append(step)
    off = [step.number for step in found if not step.agrees]
    return DecodeComparison(text, found, off[0] if off else None, 1 - len(off) / len(found), kept)


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
