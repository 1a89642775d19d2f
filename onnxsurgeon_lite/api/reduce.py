"""Make a failing model smaller: reduce."""

from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from onnxsurgeon_lite.api.call import Call, ComparingOnFeeds, OptLevel
from onnxsurgeon_lite.api.page import Place
from onnxsurgeon_lite.api.spelling import spelled
from onnxsurgeon_lite.debug.bisection.journal import Journal, digest
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.names import is_function
from onnxsurgeon_lite.runtime.options import Settings, settings_text, with_settings, words_of

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.reduction.conditions import Fails
    from onnxsurgeon_lite.debug.reduction.folder import Reduction
    from onnxsurgeon_lite.model import ModelLike
    from onnxsurgeon_lite.tensors.references import Tensors

_SECONDS = 60.0  # that a run may take


@spelled
def reduce(
    model: "ModelLike",
    fails: "str | Fails" = "stops",
    *,
    command: str | None = None,
    says: str = "",
    code: int | None = None,
    feeds: "Tensors | None" = None,
    a: Settings = "opt=none",
    b: Settings | None = None,
    runs: int = 1,
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
        a: Settings that a mismatch is one with, or that are faster.
        b: Settings that may fail.
        runs: How often each model runs, where it fails now and then.
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
    with Call(opt=opt, force=force, **how) as call:
        from onnxsurgeon_lite.debug.reduction import conditions, folder, shrinking
        from onnxsurgeon_lite.debug.reduction.failing import Failing, SeenValues
        from onnxsurgeon_lite.graph.summary import model_text
        from onnxsurgeon_lite.model import require_replaceable

        if output is not None:
            require_replaceable(Path(output), force)
        index, seconds = call.index(model), call.timeout or _SECONDS
        first = Failing(index.model, call.feeds(index, feeds))
        usual = replace(call.options(lean=False), timeout=seconds)
        sides = with_settings(usual, b), with_settings(usual, a)
        named = fails if isinstance(fails, str) else getattr(fails, "__name__", "function")
        ask: conditions.Ask
        if command is not None:
            ask = conditions.FailingProgram(command, says, code, seconds)
        elif not isinstance(fails, str) or is_function(fails):
            ask = conditions.FailingFunction.of(fails)
        else:
            kind, _, pattern = fails.partition("=")
            ask = conditions.Condition(call.runtime_of, *sides, call.allowed(), kind, pattern)

        # why it fails, then the search
        reason, failed = shrinking.measured(ask, first, runs)
        unoptimized = call.runtime_of(replace(usual, opt="none", lean=True))
        seen, kept = SeenValues(unoptimized, call.recipe()), Journal()
        if journal is not None:
            asked = named, command, says, code, sides, runs
            kept = Journal.at(Path(journal), digest(first.key.encode(), asked, {}), resume)
        search = shrinking.Shrinking(ask, reason, runs, seen, kept, first, call.progress, runs)
        complete = False
        with suppress(KeyboardInterrupt), closing(kept):
            search.best, complete = search.run(), True
        best, text = search.best, ""
        with suppress(SurgeonError):
            text = model_text(best.model)
        found = folder.Reduction(
            command or named,
            reason,
            failed,
            runs,
            first.extent,
            best.extent,
            search.calls,
            search.found,
            tuple(step.name for step in best.steps),
            complete,
            text,
            best.model,
            best.feeds,
        )
        if output is not None:
            options = ["--fails", named, "--a", settings_text(a), "--b", settings_text(b)]
            options = options + words_of(usual) if isinstance(fails, str) else []
            found = folder.written(found, ask, best, Path(output), options)
        return call.done(found)
