"""Many samples for the terminal: how many fail, quantiles of each value, the worst first."""

from collections.abc import Iterator, Sequence

from onnxsurgeon_lite.matching.decode import DecodeComparison
from onnxsurgeon_lite.matching.over_samples import SampleComparison, SampleOutcome
from onnxsurgeon_lite.names import counted, first
from onnxsurgeon_lite.report.metrics import explain, unproved
from onnxsurgeon_lite.report.plain import say, say_all, show_notes
from onnxsurgeon_lite.report.tables import show_table
from onnxsurgeon_lite.tensors.metrics import number_text

_LISTED = 8  # samples in a list of numbers
_STEPS = 8  # of decoding that are shown


def show_decoding(result: DecodeComparison, every_metric: bool = False) -> None:
    """Show the first token that differs, then the steps: all of them, or the first ones and those that differ."""
    off, count = result.divergent, len(result.steps)
    if off is None:
        say(f"{counted(count, 'token')}: all agree")
    else:
        step = result.steps[off]
        say(
            f"token {off} of {count} differs first: {step.token}, the reference decodes {step.wanted}"
        )
        say(f"  the reference prefers its own by {number_text(step.margin, 4)} (logits)")
        say(f"  {100 * result.agreement:.1f}% of the tokens agree")
    # the first steps, and the one where the tokens part
    told = [s for s in result.steps if every_metric or s.number < _STEPS or s.number == off]
    rows = [
        (s.number, s.token, s.wanted, number_text(s.margin, 4), number_text(s.kl, 4)) for s in told
    ]
    show_table(["step", "token", "reference", "margin", "KL"], rows)
    if len(told) < count:
        say(f"  {count - len(told)} more steps: --json, or --metrics all")


def show_samples(result: SampleComparison, every_metric: bool = False) -> None:
    """Show the verdict, quantiles of each value, then the worst samples.

    Args:
        every_metric: explain every one of the worst.
    """
    count = counted(result.total, "sample")
    fails = f"MISMATCH in {len(result.failing)} of {count}" if result.failing else f"{count}: match"
    say(fails if result.failing or result.match else f"MISMATCH over {count}")
    if result.worst and (found := result.worst[0].found) is not None:
        say_all(unproved(found))
    if (metric := result.metric) is not None:
        whole = "of all samples" if metric.whole else "largest of a sample"
        limit = number_text(metric.limit, 4)
        say(f"{metric.name}: {number_text(metric.value, 4)} ({whole}), {limit} is allowed")
    rows = []
    for name, v in result.values.items():
        quantiles = map(_short, (v.median, v.q90, v.q99, v.largest))
        rows.append((name, f"{v.failing} of {v.samples}", *quantiles))
    if rows:
        show_table(["max abs of", "fails", "median", "90%", "99%", "largest"], rows)
    wrong = [outcome for outcome in result.worst if not outcome.match]
    if wrong:
        say(f"failing: {numbers(result.failing)}")
        show_table(["worst sample", "off by", "at"], [_line(outcome) for outcome in wrong])
    for outcome in wrong if every_metric else wrong[:1]:
        say_all(_explained(outcome))
    show_notes(result.repeated)


def _line(outcome: SampleOutcome) -> tuple[object, ...]:
    found = outcome.compared
    at = max(found, key=lambda name: found[name].excess) if found else outcome.failure
    return outcome.number, _short(outcome.error), at


def numbers(samples: Sequence[int]) -> str:
    """Return the first numbers of samples."""
    return first(list(map(str, samples)), _LISTED)


def _explained(outcome: SampleOutcome) -> Iterator[str]:
    if outcome.failure:
        yield f"sample {outcome.number} failed: {outcome.failure}"
    for name, comparison in outcome.compared.items():
        if not comparison.match:
            yield from explain(name, comparison)


def _short(number: float) -> str:
    return number_text(number, 3)
