"""Debug: bisect, rank, match, weights, demo."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.options import Typed, Value, command
from onnxsurgeon_lite.cli.outputs import Target, factory_of
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.report.plain import say, show_notes, stdout

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.reduction.folder import Reduction
    from onnxsurgeon_lite.debug.result import BisectResult
    from onnxsurgeon_lite.matching.values.run_both import MatchResult
    from onnxsurgeon_lite.matching.weights import WeightsResult
    from onnxsurgeon_lite.shown import Shown

_LOOK = Typed(
    completes=lambda: list(options.LOOKS),
    metavar=f"[{'|'.join(options.LOOKS)}]",
    parser=options.look,
)


@command("bisecting")
def bisect(
    call: Callable[..., "BisectResult"],
    model: Path | None = None,
    *,
    reference: str | None = None,
    against: Path | None = None,
    a: str | None = None,
    b: str | None = None,
    find: str | None = None,
    versions: Annotated[str | None, Typed(metavar="FIRST..LAST")] = None,
    look: Annotated[options.Look, _LOOK] = "auto",
    quick: bool = False,
    output: Path | None = None,
    force: bool = False,
    cause: Annotated[bool, Typed(("--cause/--no-cause",))] = True,
    repair: Annotated[Path | None, Typed(metavar="OUT")] = None,
    factory: Annotated[str | None, Typed(metavar="FILE.py:FN")] = None,
    metrics: options.Metrics = "usual",
    verbose: bool = False,
    html: Path | None = None,
    node_data: Path | None = None,
    json: bool = False,
) -> None:
    """Find the nodes where a model leaves its references, say why, and write a reproducer folder.

    Without arguments it takes what onnxdbg.toml says, or the one model and the one reference set in this folder.

    $ onnxdbg bisect faulty.onnx --reference torch_refs
    $ onnxdbg bisect faulty.onnx --against model.onnx -o against

    Args:
        model: Model to read; by default the one in this folder.
        a: Settings that give the references: opt=none,threads=1.
        b: Settings that are searched: opt=all,provider=cpu.
        find: Look for nan, inf or overflow:float16 instead.
        versions: Versions of onnxruntime, which pip installs: find the first that gives other outputs, and the node.
        look: Search the optimized graph, the unoptimized one, or run every node alone.
        quick: Find one culprit and say no more about it.
        memory: Bytes of values that are computed at once.
        journal: File that keeps the answers.
        resume: Go on from the journal of a search that was cut short, also one for causes.
        strip_weights: Noise for weights in the reproducer, if it still fails.
        cause: Say what is wrong with the culprits, and what repairs them.
        seconds: How long the search of causes may take; 45 by default, or more where the bisection took longer.
        repair: Where to write the repaired model and, as .toml, its recipe; proved by another search.
        factory: PyTorch module that is traced where a region is wide, or its cause is not known; the one that the
            references were recorded from here, if it is as it was.
        blame: Share the error of the worst output among all nodes.
        workaround: Where a kernel or an optimizer is wrong, find the nearest edit that avoids it; --repair makes it.
    """
    model, reference, against = _asked(model, reference, against, a or b, find or versions)
    target = Target(model, "culprit", output, force, suffix="")
    told = list[str]()

    def headline(found: "BisectResult") -> None:
        from onnxsurgeon_lite.report.bisection import show_headlines

        # shown while the causes are searched, and not again at the end
        told[:] = [] if json else [show_headlines(found, "".join(told))]
        stdout().flush()  # whoever sees it may end the search

    result = call(
        model,
        headline=headline,
        reference=reference,
        against=against,
        output=target.path,
        force=target.replaceable(),
        factory=factory or (None if quick else factory_of(reference)),
    )
    if result.reproducer is not None:
        target.wrote()
    before = "".join(told)
    options.show(result, json, metrics, verbose, html=html, node_data=node_data, told=before)
    # with --repair the exit code is that of the repaired model
    final = result if result.repair is None else result.repair
    options.require(final.verdict == "agrees")


def _asked(
    model: Path | None,
    reference: str | None,
    against: Path | None,
    settings: str | None,
    find: str | None,
) -> tuple[Path, str | None, Path | None]:
    """(model, references, other model): as given, else what the folder offers."""
    ways = [way for way in (reference, against, settings, find) if way]
    # `osl.bisect` refuses this too, but here a folder is searched for references before it is called
    if len(ways) > 1:
        raise UsageError(
            "there are several things to compare with",
            "give one of --reference, --against, --a with --b, --find, --versions",
        )
    if model is not None and ways:
        return model, reference, against
    from onnxsurgeon_lite.cli.discover import look_around

    found = look_around(model, not ways)
    show_notes([found.said])
    return found.model, found.reference or reference, found.against or against


# Without --journal the answers are kept until the search is complete, for --resume.
# The result of an interrupted search is shown; then the exit code says so.
@command("reducing")
def reduce(
    call: Callable[..., "Reduction"],
    model: Path,
    *,
    fails: str = "stops",
    runs: Annotated[int, Typed(least=1)] = 1,
    output: Path | None = None,
    journal: Path | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Find the smallest model, and the smallest inputs, that still fail; write a folder to report it with.

    $ onnxdbg reduce crashes.onnx --fails error -o small
    $ onnxdbg reduce crashes.onnx --command 'python check.py {model}' --says 'not supported'

    Args:
        fails: crash, hang, error=REGEX, stops (any), mismatch, nan, inf, invalid, slower=RATIO or FILE.py:function.
        command: Program that fails; {model} is the model's file, {feeds} a folder with its inputs.
        says: Regular expression of the program's output when it fails.
        code: The program's exit code when it fails; any but 0 by default.
        reference: Tensors that a mismatch is one with: .npz, .npy, .safetensors, test_data_set_N or a recorded folder.
        a: Settings that a mismatch is one with, or that are faster; opt=none by default.
        b: Settings that may fail.
        runs: How often each model runs, where it fails now and then.
        jobs: Questions that are asked at a time, by runtimes with one thread each; 0 for one with all threads.
        seconds: How long the search may take; the result is then the smallest model so far.
        journal: File that keeps the answers; by default one beside the output, until the search is complete.
        resume: Go on from the journal of a search that was cut short.
    """
    target = Target(model, "reduced", output, force, suffix="")
    kept = journal or target.path.with_suffix(".journal")  # for --resume, while it is not complete
    result = call(model, output=target.path, journal=kept, force=target.replaceable())
    target.wrote()
    options.show(result, json)
    if not (result.complete or result.late):
        raise KeyboardInterrupt
    if journal is None and result.complete:
        kept.unlink(missing_ok=True)
    options.require(result.proved is not False)


@command("ranking", shows="json")
def rank(_: "Shown", *, of: Value | None = None) -> None:
    """Order nodes by the accuracy they lose, and print the names that a quantizer or converter should exclude.

    $ onnxdbg rank faulty.onnx --against model.onnx --by output
    $ onnxdbg rank model.onnx --fp16-risk

    Args:
        fp16_risk: What float16 would lose, from one float32 run.
        below: Decibels under which a node is on the exclude list.
        leave_one_out: Order layers by what the outputs gain when one alone is in float; needs --against.
        reach: With --leave-one-out: decibels that the outputs should have; the exclude list reaches them.
        by: What each node loses itself, or its share in an output's error.
        of: With --by output: the output, the worst by default; with --bits, the first.
        bits: Choose the bits of each weight for this SQNR of an output, in decibels, at the least bytes.
    """


@command("matching")
def match(
    result: "MatchResult",
    *,
    save: options.Save = None,
    html: Path | None = None,
    force: bool = False,
    json: bool = False,
) -> None:
    """Say which value of one model, or of a reference set, is which value of another, whatever they are called.

    $ onnxdbg match torch_refs model.onnx --save map.json
    $ onnxdbg match model.onnx dynamo.onnx

    Args:
        a: A model, or a set of tensors.
        b: A model.
        save: Write the pairs to a file for --map.
    """
    options.store(result, save, force, json, html=html)


@command("comparing weights", shows="json")
def weights(
    result: "WeightsResult",
    *,
    update: Path | None = None,
    lora: Path | None = None,
    target: Target,
) -> None:
    """Compare a model's weights with the checkpoint it was exported from: renamed, transposed or folded.

    $ onnxdbg weights model.onnx --against weights.safetensors
    $ onnxdbg weights decoder.onnx --against decoder.safetensors --lora adapter.safetensors --lora-as inputs

    Args:
        against: Checkpoint: .safetensors, .pt, .pth, .gguf or .npz.
        update: Write a model with the numbers of this one, each where and as the compared one is.
        lora: Write a model with this LoRA adapter: adapter.safetensors.
        lora_as: Merge it into the weights; or add branches beside them: of initializers, or of inputs with a default.
        alpha: With --lora: the alpha of its training, unless adapter_config.json is beside it.
        partial: With --update: keep the weights whose new numbers are not known for sure.
    """
    from onnxsurgeon_lite.model import movable

    if result.model is None:
        options.require(result.match)
    else:
        options.save(result.model, target, movable(result.model))


@command()
def demo(
    call: Callable[..., None], folder: Path = Path("onnxdbg-demo"), *, keep: bool = False
) -> None:
    """Show the main job on a small model that is made on the spot.

    $ onnxdbg demo
    $ onnxdbg demo --keep

    Args:
        folder: With --keep: the folder for the files.
        keep: Leave the files to play with.
    """
    call(folder if keep else None)
    if keep:
        say(
            f"\nthe files stay in {str(folder)!r}: a model, a faulty copy, references, a reproducer"
        )
    else:
        say("\nthe files are gone; onnxdbg demo --keep leaves them in a folder to play with")
