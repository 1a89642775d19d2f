"""Which version of onnxruntime is the first that gives other outputs."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from onnxsurgeon_lite.api.call import Call
from onnxsurgeon_lite.errors import RuntimeFailure

if TYPE_CHECKING:
    from onnxsurgeon_lite.api.asked import Feeding
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.model import ModelLike
    from onnxsurgeon_lite.runtime.feeds import Feeds
    from onnxsurgeon_lite.tensors.references import ReferenceSet, Tensors


def neighbors(
    model: "ModelLike", feeding: "Feeding", versions: str, how: Mapping[str, object]
) -> tuple[str, str, str]:
    """Return two versions, as settings, and what there is to say.

    Of neighbors in the list the second gives other outputs than the first version of all. Halving finds one such place:
    where the outputs change more than once, there are others.

    Raises:
        UsageError: pip cannot install one of the versions.
        RuntimeFailure: one of them cannot run the model.
    """
    from onnxsurgeon_lite.matching.sets import compare_sets
    from onnxsurgeon_lite.runtime.environments import versions_between

    found = versions_between(versions)
    last = len(found) - 1
    begun: Callable[..., Call] = Call
    with begun(**feeding.made(), **how) as call:
        index = call.index(model)
        feeds = call.feeds(index, cast("Tensors | None", feeding.feeds))
        right = _outputs(call, index, feeds, found[0])

        def differs(place: int) -> bool:
            made = _outputs(call, index, feeds, found[place])
            return not compare_sets(made, right, call.allowed()).match

        if not differs(last):
            said = (
                f"onnxruntime {found[0]} and {found[last]} agree: no version between them was tried"
            )
            return _settings(found[0]), _settings(found[last]), said
        # the first version agrees with itself and the last differs, so the answer lies in 1..last; `last` need not be
        # asked
        place = bisect_left(range(last), True, lo=1, key=differs)
    said = f"onnxruntime {found[place]} is the first version whose outputs differ from those of {found[place - 1]}"
    return _settings(found[place - 1]), _settings(found[place]), said


def _settings(version: str) -> str:
    return f"runtime=ort:version={version}"


def _outputs(call: Call, index: "GraphIndex", feeds: "Feeds", version: str) -> "ReferenceSet":
    from onnxsurgeon_lite.runtime.choice import runtime_of
    from onnxsurgeon_lite.runtime.options import with_settings
    from onnxsurgeon_lite.runtime.run import run
    from onnxsurgeon_lite.tensors.dtypes import present
    from onnxsurgeon_lite.tensors.references import ReferenceSet

    call.progress(f"onnxruntime {version}")
    try:
        with runtime_of(with_settings(call.options(), _settings(version))) as runtime:
            return ReferenceSet.of(present(run(index, feeds, runtime)))
    except RuntimeFailure as error:
        raise RuntimeFailure(
            f"onnxruntime {version}: {error.message}", "choose versions that run the model"
        ) from error
