"""Stack the ragged outputs of several images into one padded batch."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

from onnx import TensorProto, TypeProto, helper

from onnxsurgeon_lite.errors import ShapeError, UsageError, require_known
from onnxsurgeon_lite.graph import GraphIndex, dims_of, shape_text
from onnxsurgeon_lite.model import Model, copied
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.ragged import (
    COUNT,
    Appender,
    padded_type,
    ragged_type,
    require_length,
)
from onnxsurgeon_lite.surgery import fresh

_NUMBERED = re.compile(r"(?P<group>.+?)[._](?P<image>\d{1,9})")


@dataclass(frozen=True)
class BatchOutputs:
    """Pad the outputs of several images to one length, stack them, and add an output that counts the valid rows.

    `boxes.0 [n, 4]`, `boxes.1 [m, 4]` become `boxes [2, most, 4]`; a single output becomes a batch of one.
    Detections beyond `most` are dropped. Other outputs stay.

    Attributes:
        most: the padded length.
        groups: new output -> the output of each image, in order; by default outputs numbered `boxes.0`, `boxes.1`.
        fill: the padding value by new output, 0 by default.
        count: the name of the output with the number of detections, `int64 [images]`.

    Example:
        >>> images = osl.name_outputs("detector.onnx", ["boxes", "labels", "scores"])
        >>> [value.name for value in osl.batch_outputs(images.model, 100).model.proto.graph.output]
        ['boxes', 'labels', 'scores', 'num_detections']
    """

    most: int
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fill: Mapping[str, float] = field(default_factory=dict)
    count: str = COUNT
    name: ClassVar[str] = "batch-outputs"

    # Of what is added only values of nodes need a declaration of their own.
    def apply(self, model: Model) -> PassResult:
        """Batch the outputs.

        Raises:
            UnknownNameError: the model has no such output.
            ShapeError: outputs of a group do not fit together, or no group was found.
            UsageError: the groups differ in length, or a name exists already.
        """
        index = GraphIndex.of(model)
        require_length(self.most)
        groups = self._groups(index)
        kinds = {group: _common_type(index, names) for group, names in groups.items()}

        result = model.copy()  # count the rows of each image, then pad and stack each group
        graph = result.graph
        # each output becomes [most, ...] with its own count, then [1, most, ...], then one Concat
        appender = Appender(result)
        first = next(iter(groups.values()))
        counts = [
            appender.length(name, self.most, fresh(f"{name}.count", appender.taken))
            for name in first
        ]
        appender.named("Concat", counts, self.count, axis=0)
        for group, names in groups.items():
            self._stack(appender, group, names, kinds[group])
        # stacked outputs take the place of those of single images, which stay inner values
        gone = set(chain.from_iterable(groups.values()))
        ragged = [info for info in graph.output if info.name in gone]
        kept = [info for info in graph.output if info.name not in gone]
        del graph.output[:]
        graph.value_info.extend(info for info in ragged if info.name in index.producer)
        for group, names in groups.items():
            kind = padded_type(kinds[group], [len(names), self.most])
            graph.output.append(helper.make_value_info(group, kind))
        counted = helper.make_tensor_value_info(self.count, TensorProto.INT64, [len(first)])
        graph.output.append(counted)
        graph.output.extend(kept)
        changes = [f"{group!r} is {', '.join(map(repr, names))}" for group, names in groups.items()]
        changes.append(f"{self.count!r} counts {', '.join(first)}")
        return PassResult.of(model, result, changes)

    def _groups(self, index: GraphIndex) -> dict[str, tuple[str, ...]]:
        groups = dict(self.groups) or _numbered(index)
        if not groups:
            raise ShapeError(
                "no outputs are numbered like boxes.0, boxes.1",
                "give groups: boxes=OUTPUT,OUTPUT; or name the outputs first: onnxdbg edit name-outputs",
            )
        # 1. all outputs exist
        named = chain.from_iterable(groups.values())
        require_known(named, index.outputs, "the model", "output")
        # 2. each group has one of each image
        lengths = {group: len(names) for group, names in groups.items()}
        if len(set(lengths.values())) > 1 or 0 in lengths.values():
            shown = ", ".join(f"{group!r} {length}" for group, length in lengths.items())
            raise UsageError(
                f"the groups have different numbers of images: {shown}",
                "list one output of each image in every group",
            )
        # 3. the new names are free
        for name in chain(groups, [self.count]):
            if name in index:
                raise UsageError(
                    f"value {name!r} exists already", "choose another name: NEW=OUTPUT,OUTPUT"
                )
        # 4. what fills up belongs to a group
        for name in self.fill:
            if name not in groups:
                raise UsageError(
                    f"--fill {name!r} is not a group", f"the groups are {', '.join(groups)}"
                )
        return groups

    def _stack(
        self, appender: Appender, group: str, names: tuple[str, ...], kind: TypeProto
    ) -> None:
        images = []
        for name in names:
            target = fresh(f"{name}.padded", appender.taken)
            padded = appender.padded(name, kind, self.most, self.fill.get(group, 0.0), target)
            images.append(appender.unsqueezed(padded, f"{name}.image"))
        appender.named("Concat", images, group, axis=0)


def _numbered(index: GraphIndex) -> dict[str, tuple[str, ...]]:
    """Group the outputs named `<group>.<image>` or `<group>_<image>`, ordered by image number."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for name in index.outputs:
        match = _NUMBERED.fullmatch(name)
        if match is not None:
            found[match["group"]][int(match["image"])] = name
    return {group: tuple(images[i] for i in sorted(images)) for group, images in found.items()}


def _common_type(index: GraphIndex, names: tuple[str, ...]) -> TypeProto:
    """Merge the types of a group; dimensions that differ become open."""
    kinds = [ragged_type(index, name) for name in names]
    common = copied(kinds[0])
    for name, kind in zip(names, kinds, strict=True):
        what = f"{names[0]!r} {shape_text(kinds[0])} and {name!r} {shape_text(kind)} do not stack"
        same = kind.tensor_type.elem_type == common.tensor_type.elem_type
        if not same or len(dims_of(kind)) != len(dims_of(common)):
            raise ShapeError(what, "the outputs of a group must have one dtype and rank")
        dims = list(zip(dims_of(common), dims_of(kind), strict=True))
        for known, dim in dims[1:]:
            if known != dim and known.HasField("dim_value") and dim.HasField("dim_value"):
                raise ShapeError(what, "they may differ only in dimension 0")
            # known in one image only, or different names: any size
            if known != dim:
                known.Clear()
    return common
