"""Take an edit back: give a model the structure that it had before."""

from dataclasses import dataclass
from typing import ClassVar

from onnx import ModelProto, TensorProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.model import Model, copied, drop, entries, external_tensors, loaded, walk
from onnxsurgeon_lite.passes.protocol import PassResult

_EDITED = "onnxsurgeon_lite.edited"
_HELD = "onnxsurgeon_lite.held"


@dataclass(frozen=True)
class Restore:
    """Give an edited model back the structure that it had before.

    Attributes:
        before: the earlier model, as `Restore.undoing` makes it, or the path of its file. A large tensor that the
            edited model holds, too, has its place among that model's tensors instead of numbers.

    Example:
        >>> model = osl.load("whole_model.onnx")
        >>> edited = osl.extract(model, outputs="28").model
        >>> osl.Restore.undoing(model, edited).apply(edited).model.proto == model.proto
        True
    """

    before: str | Model
    name: ClassVar[str] = "restore"

    @classmethod
    def undoing(cls, before: Model, after: Model) -> "Restore":
        """Return the pass that makes `before` out of `after`, which was made by editing `before`."""
        spans = [_span(tensor) for tensor in walk.tensors(after.proto)]
        # where numbers are -> which tensor of the edited model has them
        places = {span: place for place, span in enumerate(spans) if span}
        earlier = before.copy()
        for tensor in external_tensors(earlier.proto):
            place = places.get(_span(tensor))
            # a tensor that the edit removed: its numbers go into the recipe's model
            if place is None:
                earlier.fill([tensor])  # the edited model may be written over its file
            else:
                # one that the edited model has: its number there takes the place of the numbers
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
                tensor.metadata_props.add(key=_HELD, value=str(place))
        # a recipe must be applied to the very model that the edit made
        earlier.proto.metadata_props.add(key=_EDITED, value=_digest(after.proto))
        return cls(earlier)

    def apply(self, model: Model) -> PassResult:
        """Restore.

        Raises:
            EditError: it was made for another edited model.
        """
        before = loaded(self.before)
        edited = entries(before.proto.metadata_props).get(_EDITED)
        if edited != _digest(model.proto):
            raise EditError(
                "the recipe takes back an edit that did not make this model",
                "give the model as the edit left it",
            )
        result = model.with_proto(copied(before.proto))
        result.files.update(before.files)
        drop(result.proto.metadata_props, lambda entry: entry.key == _EDITED)
        held = {str(place): tensor for place, tensor in enumerate(walk.tensors(model.proto))}
        for tensor in walk.tensors(result.proto):
            place = entries(tensor.metadata_props).get(_HELD)
            if place is not None:
                drop(tensor.metadata_props, lambda entry: entry.key == _HELD)
                other = held.get(place, TensorProto())
                # a reference to another tensor than the one that was meant
                if (other.data_type, other.dims) != (tensor.data_type, tensor.dims):
                    raise EditError(f"the edited model has no numbers for tensor {tensor.name!r}")
                tensor.external_data.extend(other.external_data)
                tensor.data_location = other.data_location
        return PassResult.of(model, result, ["restored the model as it was before the edit"])


def _span(tensor: TensorProto) -> frozenset[tuple[str, str]]:
    """Return where a tensor's numbers are in a file; nothing if they are in memory."""
    return frozenset(entries(tensor.external_data).items())


def _digest(proto: ModelProto) -> str:
    """Return a hash of a structure, wherever its numbers are."""
    from hashlib import sha256

    plain = copied(proto)
    for tensor in walk.tensors(plain):
        # names, shapes and dtypes: numbers may lie elsewhere after saving
        tensor.CopyFrom(TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type))
    return sha256(plain.SerializeToString(deterministic=True)).hexdigest()
