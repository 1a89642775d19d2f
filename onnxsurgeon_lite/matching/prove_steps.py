"""Prove by running that a simplified model computes the same; leave out, by name, the steps that do not."""

from dataclasses import replace

from onnxsurgeon_lite.errors import EditError, RuntimeFailure
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.verify import verify
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes import PassResult, Simplify
from onnxsurgeon_lite.runtime.feeds import Recipe, make_feeds
from onnxsurgeon_lite.runtime.session import Runtime

_SIZES = (2, 3, 5, 7, 11, 13)  # of symbolic dimensions, so that none stands for another


def simplify_proved(
    step: Simplify, original: Model, runtime: Runtime, recipe: Recipe
) -> tuple[PassResult, list[str]]:
    """Simplify a model with the steps whose results agree with it.

    Returns:
        (the result, with a note for each step that was left out; the proved facts, one line each).

    Raises:
        EditError: the original runs at no size that was tried.
    """
    result = step.apply(original)
    if not result.changed:
        return result, []
    proof = _Proof(original, runtime, recipe)
    failure = proof.failure(result.model)
    if failure is not None:
        result = _without_failing(step, original, proof)
    return result, [f"agrees with the original at {'; '.join(proof.sizes)}"]


def _without_failing(step: Simplify, original: Model, proof: "_Proof") -> PassResult:
    """Simplify with one step more at a time, and leave out those after which the outputs differ."""
    every = [one.name for one in step.steps()]
    left_out = list(step.without)
    notes = []
    result = PassResult(original, changed=False)
    for number, name in enumerate(every, 1):
        candidate = replace(step, without=(*left_out, *every[number:]))
        tried = candidate.apply(original)
        failure = proof.failure(tried.model) if tried.changed else None
        if failure is None:
            result = tried
        else:
            left_out.append(name)
            notes.append(f"left out {name!r}, which is not proved: {failure}")
    return replace(result, notes=(*notes, *result.notes))


class _Proof:
    """Runs of the original, to compare other models with.

    Attributes:
        sizes: the runs, as text.
    """

    def __init__(self, original: Model, runtime: Runtime, recipe: Recipe) -> None:
        self.index = GraphIndex.of(original)
        self.runtime = runtime
        self.sizes: list[str] = []
        self.feeds = []
        refused = None
        for number, dims in enumerate(({}, self._distinct())):
            sizes = {**dims, **recipe.dims}
            made = replace(recipe, seed=recipe.seed + number, dims=sizes)
            feeds, _ = make_feeds(self.index, made)
            try:
                verify(self.index, self.index, feeds, runtime)
            except RuntimeFailure as error:
                refused = error
                continue
            self.feeds.append(feeds)
            self.sizes.append(
                ", ".join([*(f"{k} = {v}" for k, v in sizes.items()), f"seed {made.seed}"])
            )
        if refused is not None and not self.feeds:
            raise EditError(
                f"not proved: the runtime does not run the original: {refused.message}",
                "give sizes that it takes (--dim NAME=SIZE), or write it without proof: --unproved",
            ) from refused

    def _distinct(self) -> dict[str, int]:
        names = {
            dim.dim_param
            for info in self.index.inputs.values()
            for dim in info.type.tensor_type.shape.dim
            if dim.dim_param
        }
        return {name: _SIZES[place % len(_SIZES)] for place, name in enumerate(sorted(names))}

    def failure(self, model: Model) -> str | None:
        """Return how a model differs from the original; None if it agrees."""
        index = GraphIndex.of(model)
        for feeds, sizes in zip(self.feeds, self.sizes, strict=True):
            try:
                compared = verify(self.index, index, feeds, self.runtime)
            except RuntimeFailure as error:
                return f"the result does not run: {error.message}"
            for name, comparison in compared.compared.items():
                if not comparison.match:
                    return f"output {name!r} differs by up to {comparison.max_abs:.6g} ({sizes})"
        return None
