"""Make a failing model smaller: reduce."""

import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from onnxsurgeon_lite.api.call import Call, ComparingOnFeeds, OptLevel
from onnxsurgeon_lite.api.page import Place
from onnxsurgeon_lite.api.spelling import DEFAULTS, spelled
from onnxsurgeon_lite.debug.journal import Journal, digest
from onnxsurgeon_lite.errors import OutOfTime, SurgeonError, UsageError
from onnxsurgeon_lite.names import is_function
from onnxsurgeon_lite.runtime.options import RuntimeOptions, Settings, settings_text, with_settings

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.reduction.asking import Questions
    from onnxsurgeon_lite.debug.reduction.conditions import Ask, Failing, Fails
    from onnxsurgeon_lite.debug.reduction.folder import Reduction
    from onnxsurgeon_lite.debug.reduction.shrinking import Shrinking
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.model import ModelLike
    from onnxsurgeon_lite.runtime.feeds import Feeds
    from onnxsurgeon_lite.runtime.session import Runtime
    from onnxsurgeon_lite.tensors.references import ReferenceSet, Tensors

_SECONDS = 60.0  # that a run may take
_RIGHT = "opt=none"  # the settings that a mismatch is one with
_ALONE = "write --fails mismatch --reference REFS, without --a or --command"
_OF_FEEDS = ("seed", "dim", "fill", "progress")  # what a written folder says by itself


@spelled
def reduce(
    model: "ModelLike",
    fails: "str | Fails" = "stops",
    *,
    command: str | None = None,
    says: str = "",
    code: int | None = None,
    feeds: "Tensors | None" = None,
    reference: "Tensors | None" = None,
    a: Settings | None = None,
    b: Settings | None = None,
    runs: int = 1,
    jobs: int = 0,
    seconds: float | None = None,
    output: Place = None,
    journal: Place = None,
    resume: bool = False,
    force: bool = False,
    opt: OptLevel = "all",
    **how: Unpack[ComparingOnFeeds],
) -> "Reduction":
    """Find the smallest model, and the smallest inputs, that still fail for the same reason.

    Args:
        fails: `crash`, `hang`, `error=REGEX`, `stops` (any of these), `mismatch`, `nan`, `inf`, `invalid`,
            `slower=RATIO`, or a function (model, feeds) -> why it fails, also as `FILE.py:function`.
        command: A program that fails instead: `PROGRAM {model} {feeds}`.
        says: What its output holds when it fails, a regular expression.
        code: Its exit code when it fails; any but 0 by default.
        reference: Tensors by name that a mismatch is one with, or a path; only nodes leave then.
        a: Settings that a mismatch is one with, or that are faster; `opt=none` by default.
        b: Settings that may fail.
        runs: How often each model runs, where it fails now and then.
        jobs: How many questions are asked at a time, by runtimes with one thread each; 0 for one with all threads.
        seconds: How long the search may take; the result is then the smallest model so far.
        output: The folder to write; without it none is written.
        journal: A file that keeps the answers.
        resume: Go on from the journal.
        force: Write into a folder that is not empty.

    Returns:
        The smallest model and its feeds, why it fails, how it was made.

    Raises:
        UsageError: The model does not fail, or the condition is none.

    Example:
        >>> chain = osl.build("g (float[4] x) => (float[4] y) { h = Neg (x)  l = Log (h)  y = Abs (l) }")
        >>> osl.reduce(chain, "nan", feeds={"x": np.ones(4, np.float32)}).after.nodes
        1
    """
    with Call(opt=opt, force=force, jobs=jobs, **how) as call:
        from onnxsurgeon_lite.debug.reduction import asking, conditions, folder, shrinking
        from onnxsurgeon_lite.debug.reduction.conditions import MANY, Failing, SeenValues
        from onnxsurgeon_lite.graph.summary import model_text
        from onnxsurgeon_lite.model import require_replaceable

        if output is not None:
            require_replaceable(Path(output), force)
        index, timeout = call.index(model), call.timeout or _SECONDS
        usual = replace(call.options(lean=False), timeout=timeout)
        # (what may fail, what is right)
        sides = with_settings(usual, b), with_settings(usual, a or _RIGHT)
        unoptimized = call.runtime_of(replace(sides[0], opt="none", lean=True))
        stored = None
        if reference is None:
            first = Failing(index.model, call.feeds(index, feeds))
        elif fails != "mismatch" or command is not None or a is not None:
            raise UsageError("references are one side of a mismatch", _ALONE)
        else:
            stored, given = _stored(call, index, reference, feeds, unoptimized)
            first = Failing(index.model, given)
        named = fails if isinstance(fails, str) else getattr(fails, "__name__", "function")
        if command is not None:
            ask: conditions.Ask = conditions.FailingProgram(command, says, code, timeout)
        else:
            ask = _condition(call, fails, sides, stored)
        # a program that takes no feeds cannot depend on them
        first = replace(first, blind=command is not None and "{feeds}" not in command)

        # why it fails, then the search
        reason, failed = asking.measured(ask, first, runs)
        seen, kept = SeenValues(unoptimized, call.recipe(), stored), Journal()
        if journal is not None:
            right = ask.stored(first) if isinstance(ask, conditions.Condition) else {}
            asked = named, command, says, code, sides, runs, call.allowed()
            # a journal belongs to one model, one condition and one set of options
            kept = Journal.at(Path(journal), digest(first.key.encode(), asked, right), resume)
        # one condition for each question that is asked at the same time
        asks = [ask] + [conditions.another(ask) for _ in range(1, jobs)]
        questions = asking.Questions(asks, reason, runs, runs)
        seen.any_fit = first.blind or first.extent.bytes > MANY and _any_fit(call, questions, first)
        search = shrinking.Shrinking(questions, reason, seen, kept, first, call.progress)
        search.until = time.monotonic() + (inf if seconds is None else seconds)
        with closing(kept):
            ended = _ended(search)
        best, text = search.best, ""
        with suppress(SurgeonError):
            text = model_text(best.model)
        found = folder.Reduction(
            command or named,
            search.reason,
            failed,
            runs,
            first.extent,
            best.extent,
            questions.asked,
            search.found,
            tuple(step.name for step in best.steps),
            ended == "complete",
            ended == "late",
            text,
            best.model,
            best.feeds,
        )
        if output is not None:
            settings = {"fails": named, "a": a and settings_text(a), "b": b and settings_text(b)}
            again = _words({**settings, "opt": opt, **how}) if isinstance(fails, str) else []
            found = folder.written(found, ask, best, Path(output), again)
        return call.done(found)


def _ended(search: "Shrinking") -> str:
    """Search, and return how that ended."""
    try:
        search.best = search.run()
    except KeyboardInterrupt:
        return "interrupted"
    except OutOfTime:
        return "late"
    return "complete"


def _any_fit(call: Call, questions: "Questions", first: "Failing") -> bool:
    """Return whether a large model fails with other feeds, too."""
    from onnxsurgeon_lite.runtime.feeds import make_feeds

    with suppress(SurgeonError):
        # other numbers of the same shapes
        feeds, _ = make_feeds(first.index, replace(call.recipe(), seed=call.seed + 1))
        return questions.answer(replace(first, feeds=feeds)) == questions.wanted
    return False


def _condition(
    call: Call,
    fails: "str | Fails",
    sides: tuple[RuntimeOptions, RuntimeOptions],
    stored: "ReferenceSet | None",
) -> "Ask":
    from onnxsurgeon_lite.debug.reduction.conditions import Condition, FailingFunction

    if not isinstance(fails, str) or is_function(fails):
        return FailingFunction.of(fails)
    kind, _, pattern = fails.partition("=")
    return Condition(call.runtime_of, *sides, call.allowed(), kind, pattern, stored)


def _stored(
    call: Call,
    index: "GraphIndex",
    reference: "Tensors",
    feeds: "Tensors | None",
    runtime: "Runtime",
) -> "tuple[ReferenceSet, Feeds]":
    """Return the references under the model's names, and the feeds that they belong to."""
    from onnxsurgeon_lite.api.bisecting import first_sample, judging
    from onnxsurgeon_lite.matching.values import alignment

    job = judging(call, index, reference, feeds)
    if job.several:
        raise UsageError("there are several samples", "give the references of one that fails")
    stored, given = first_sample(call, index, job)
    return alignment(stored, index, given, runtime).of(stored, index), given


def _words(given: Mapping[str, object]) -> list[str]:
    """Return what the command needs to ask the same of the written feeds."""
    words = list[str]()
    for name, value in given.items():
        if name in _OF_FEEDS or value in (None, DEFAULTS.get(name)):
            continue
        if isinstance(value, Mapping):
            value = [f"{key}:{number}" for key, number in value.items()]
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [f"--{name.replace('_', '-')}", str(each)]
    return words
