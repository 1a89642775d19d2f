"""`inspect --histogram` for the terminal."""

from collections.abc import Sequence

import numpy as np

from onnxsurgeon_lite.report.plain import out, say
from onnxsurgeon_lite.report.tables import show_table
from onnxsurgeon_lite.tensors.metrics import number_text
from onnxsurgeon_lite.tensors.statistics import Distribution

_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR = 40  # characters
_ODD = ("zeros", "NaN", "Inf", "outliers")
_TITLES = ["name", "dtype", "shape", "min", "max", "mean", "std", "odd"]


def show_distributions(tensors: Sequence[Distribution]) -> None:
    """Show a line a tensor; of one alone everything."""
    if len(tensors) == 1:
        _show_one(tensors[0])
        return
    rows = [(*_cells(t), _small(t.counts)) for t in tensors]
    show_table([*_TITLES, "histogram"], rows)


def _cells(tensor: Distribution) -> list[object]:
    numbers = (tensor.min, tensor.max, tensor.mean, tensor.std)
    odd = zip((tensor.zeros, tensor.nan, tensor.inf, tensor.outliers), _ODD, strict=True)
    told = ", ".join(f"{count} {what}" for count, what in odd if count)
    shape = list(tensor.shape)
    return [tensor.name, tensor.dtype, shape, *(number_text(n, 4) for n in numbers), told]


def _small(counts: Sequence[int]) -> str:
    """A column of a line's height for each bin; logarithmic, so that a few elements are seen beside many."""
    heights = np.log1p(counts)
    return "".join(_BLOCKS[int(np.ceil(8 * h / heights.max()))] for h in heights)


def _show_one(tensor: Distribution) -> None:
    show_table(_TITLES, [_cells(tensor)])
    if tensor.min is None or tensor.max is None:
        return
    out("")
    quantiles = (f"{float(q):.4g}: {number_text(n, 4)}" for q, n in tensor.quantiles.items())
    what = "absolute values, by the share of elements that do not exceed them"
    say(f"{what}: {', '.join(quantiles)}")
    largest = ", ".join(f"{number_text(e.value, 4)} at {list(e.index)}" for e in tensor.largest)
    say(f"largest: {largest}")
    out("")
    shares = (i / len(tensor.counts) for i in range(len(tensor.counts)))
    edges = (tensor.min * (1 - share) + tensor.max * share for share in shares)
    bars = (round(_BAR * count / max(tensor.counts)) for count in tensor.counts)
    rows = [
        (number_text(edge, 4), count, "█" * bar + "▏" * (count > 0 and not bar))
        for edge, count, bar in zip(edges, tensor.counts, bars, strict=True)
    ]
    show_table(["from #", "elements #", ""], rows)
