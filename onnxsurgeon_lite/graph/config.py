"""Compare a language model with the configuration of its source: a table of fields, and of where a graph has them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from onnx import NodeProto, TensorProto, helper

from onnxsurgeon_lite.graph.index import GraphIndex, dims_of
from onnxsurgeon_lite.graph.quantizers import constant_of
from onnxsurgeon_lite.graph.schemas import schema_of
from onnxsurgeon_lite.model import operand, plain_domain
from onnxsurgeon_lite.tensors.dtypes import Wide, wide
from onnxsurgeon_lite.untrusted import inner

Json = Mapping[str, object]
Found = float | tuple[float, ...] | str
ATTENDING = ("GroupQueryAttention", "MultiHeadAttention", "Attention")
_NORMS = (
    "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "LayerNormalization",
    "SkipLayerNormalization", "RMSNormalization",
)  # fmt: skip
_TABLES = {
    ("GroupQueryAttention", "com.microsoft"): (7, 8),
    ("RotaryEmbedding", "com.microsoft"): (2, 3),
    ("RotaryEmbedding", ""): (1, 2),
}
"""Operator -> the inputs with the tables of cosines and sines."""
_ROWS = ("Gather", "GatherBlockQuantized")
_PASSING = ("Transpose", "Reshape", "Cast", "Identity")
_SHOWN = 4  # numbers of a list
_CLOSE = 5e-3  # what half precision rounds
_LARGEST_HEAD = 1 << 16
_SMALL = 1 << 28  # elements of two tables that are compared


class _NotToldError(Exception):
    """The graph, or the configuration, does not tell."""


@dataclass(frozen=True)
class Agreement:
    """A field of a configuration, and what the graph does.

    Attributes:
        wanted: what the configuration says, found: what the graph has; '' where it is not known.
        agrees: None where it is not known. where: what of the graph was read, or why it is not known.
    """

    field: str
    wanted: str
    found: str
    agrees: bool | None
    where: str


def agreements(index: GraphIndex, config: Json) -> tuple[Agreement, ...]:
    """Return how a model agrees with each field of its configuration that a graph may tell."""
    # models of several kinds have the language model inside
    source = _Source(inner(config, "text_config") or config)
    graph = _Graph(index, source)
    found = []
    if source.number("hidden_size") is None:  # of no language model that is known here
        return ()
    for field, (wanted, read, where) in _FIELDS.items():
        # for the message, if reading fails after this
        right, value, agrees = "", "", None
        try:
            # the names of a number, or a function
            asked = source.number(*wanted) if isinstance(wanted, tuple) else wanted(source)
            if asked is None:
                continue
            right = _text(asked)
            place = where if isinstance(where, str) else where(graph)
            made = read(graph)
            value, agrees = _text(made), _same(asked, made)
        except _NotToldError as error:
            place = str(error)
        except (ArithmeticError, ValueError) as error:
            right = ""
            place = f"its numbers are no sizes: {error}"
        found.append(Agreement(field, right, value, agrees, place))
    return tuple(found)


def agreements_of_package(index: GraphIndex, package: Json) -> tuple[Agreement, ...]:
    """Return how a graph agrees with the sizes and the names of values that its package's configuration has."""
    model = inner(package, "model")
    decoder = inner(model, "decoder")
    config = {
        **decoder,
        "head_dim": decoder.get("head_size"),
        "vocab_size": model.get("vocab_size"),
        "sliding_window": None,  # the program that runs a package may slide the cache itself
    }
    # only fields that the package has
    told = [each for each in agreements(index, config) if config.get(each.field) is not None]
    for kind, values in (("inputs", index.inputs), ("outputs", index.outputs)):
        for field, name in inner(decoder, kind).items():
            # `past_key_values.%d.key`: the name in the first layer
            first = str(name).replace("%d", "0", 1)
            agrees, where = first in values, f"{kind[:-1]} {first!r} of the graph"
            told.append(Agreement(field, str(name), "missing" * (not agrees), agrees, where))
    return tuple(told)


@dataclass(frozen=True)
class _Source:
    """A configuration as transformers writes it; anybody may have written it."""

    config: Json

    def number(self, *names: str) -> float | None:
        """Return the first of some fields that is a number."""
        found = map(self.config.get, names)
        # True is an int in Python
        numbers = (n for n in found if isinstance(n, int | float) and not isinstance(n, bool))
        return next(map(float, numbers), None)

    def needed(self, name: str) -> float:
        number = self.number(name)
        if number is None:
            raise _NotToldError(f"the configuration has no {name}")
        return number

    @property
    def is_gemma(self) -> bool:
        return str(self.config.get("model_type", "")).startswith("gemma")

    @property
    def head(self) -> float:
        return self.number("head_dim") or self.needed("hidden_size") / max(
            self.needed("num_attention_heads"), 1
        )

    def scale(self) -> float:
        return self.number("attention_multiplier") or 1 / math.sqrt(
            self.number("query_pre_attn_scalar") or self.head
        )

    def windows(self) -> Found | None:
        """Return the window of each layer; -1 for one that attends to all."""
        window = self.number("sliding_window") or -1.0  # -1 as the operators have it: no window
        if self.config.get("use_sliding_window") is False:
            window = -1.0
        kinds = self.config.get("layer_types")
        if isinstance(kinds, list):
            return tuple(window if "sliding" in str(kind) else -1.0 for kind in kinds)
        # a pattern of layers that only the code of the model knows
        if window > 0 and (self.is_gemma or "max_window_layers" in self.config):
            raise _NotToldError("the configuration does not say which layers have a window")
        return window if "sliding_window" in self.config else None

    def rope(self) -> Json:
        found = inner(self.config, "rope_parameters") or inner(self.config, "rope_scaling")
        # one object for each kind of layer
        if any(isinstance(each, dict) for each in found.values()):
            raise _NotToldError("the configuration has rotary parameters for each kind of layer")
        return found

    def frequencies(self) -> Found | None:
        """Return what positions are multiplied by, one for each pair of a head."""
        rope = _Source(self.rope())
        theta = rope.number("rope_theta") or self.number("rope_theta")
        if theta is None:
            return None
        factor = rope.number("partial_rotary_factor") or self.number("partial_rotary_factor")
        size = int(self.head * (factor or 1.0))
        if not 0 < size <= _LARGEST_HEAD or theta <= 0:
            raise _NotToldError(f"the configuration has heads of {size}, base {theta:g}")
        plain: Wide = theta ** -(np.arange(0, size, 2) / size)  # theta ** -(2i / size)
        kind = str(rope.config.get("rope_type", rope.config.get("type", "default")))
        if kind == "linear":
            plain = plain / rope.needed("factor")
        elif kind == "llama3":
            plain = rope.llama3(plain)
        elif kind != "default":
            raise _NotToldError(f"rotary scaling {kind!r} is not known here")
        return tuple(map(float, plain))

    def llama3(self, plain: Wide) -> Wide:
        """Return frequencies as Llama 3.1 scales them: slow ones by a factor, fast ones not."""
        low, high = self.needed("low_freq_factor"), self.needed("high_freq_factor")
        # how often each frequency turns within the original length
        turns = self.needed("original_max_position_embeddings") * plain / (2 * math.pi)
        # 0: slow, scaled; 1: fast, kept; between them a mixture
        share = np.clip((turns - low) / ((high - low) or 1.0), 0, 1)
        return np.asarray((1 - share) * plain / self.needed("factor") + share * plain)

    def embedding(self) -> Found:
        return self.number("embedding_multiplier") or (
            math.sqrt(self.needed("hidden_size")) if self.is_gemma else 1.0
        )


@dataclass(frozen=True)
class _Graph:
    """What a graph tells of a language model; `source`: its configuration."""

    index: GraphIndex
    source: _Source

    @cached_property
    def attending(self) -> list[NodeProto]:
        """The nodes that attend, in order."""
        return self._nodes(ATTENDING, "attends: attention is made of several nodes")

    def _nodes(self, operators: Sequence[str], does: str) -> list[NodeProto]:
        nodes = (self.index.nodes[position] for position in self.index.order)
        if found := [node for node in nodes if node.op_type in operators]:
            return found
        raise _NotToldError(f"no node {does}")

    def settings(self, names: Sequence[str], default: float | None = None) -> Found:
        """Return an attribute of each node that attends, under the first name that one has."""
        return tuple(self._setting(node, names, default) for node in self.attending)

    def _setting(
        self, node: NodeProto, names: Sequence[str], default: float | None = None
    ) -> float:
        """Return an attribute of a node, else what its schema has for one that is left out."""
        schema = schema_of(self.index, node)
        known = schema.attributes if schema else {}
        # defaults of the schema come after what the node says
        usual = [known[name].default_value for name in names if name in known]
        for attribute in chain(node.attribute, usual):
            value = helper.get_attribute_value(attribute) if attribute.name in names else None
            if isinstance(value, int | float):
                return float(value)
        if default is None or (schema is not None and not usual):
            raise _NotToldError(f"{node.op_type} has no {names[0]}")
        return default

    def scales(self) -> Found:
        return tuple(
            # 0 means 1 / sqrt(head), as in onnxruntime
            self._setting(node, ("scale",), 0.0) or 1 / math.sqrt(self.source.head)
            for node in self.attending
        )

    def epsilons(self) -> Found:
        nodes = self._nodes(_NORMS, "normalizes: a norm is made of several nodes")
        return tuple(self._setting(node, ("epsilon",)) for node in nodes)

    def head(self) -> Found:
        """Return the size of a head, which the cache has."""
        for node in self.attending:
            # past_key: its last axis is the size of a head
            if node.op_type == "GroupQueryAttention" and (size := self._width(operand(node, 3))):
                return size
            width = self._width(_nth(node.input, 0))
            heads = self._setting(node, ("num_heads", "q_num_heads"), 0.0)
            if not any(node.input[1:3]):  # query, key and value are packed in one input
                heads += 2 * self._setting(node, ("kv_num_heads",), 0.0)
            if width and heads:
                return width / heads
        raise _NotToldError("no cache and no query of a known size")

    def _width(self, name: str) -> float:
        dims = dims_of(self.index.type_of(name))
        return float(dims[-1].dim_value) if dims else 0.0

    def base(self) -> str:
        """Say which base makes the last frequency."""
        found = self.frequencies()
        count = len(found)
        # the last frequency is base ** -((count - 1) / count)
        base = found[-1] ** (-count / (count - 1)) if count > 1 else 0
        return f"the tables of cosines and sines, base {base:.4g}"

    def frequencies(self) -> tuple[float, ...]:
        """Return the angles of position 1, which the rotary tables have."""
        for node in self.index.nodes:
            slots = _TABLES.get((node.op_type, plain_domain(node.domain)), ())
            found = [constant_of(self.index, operand(node, slot)) for slot in slots]
            tables = [wide(t[1]) for t in found if t is not None and t.ndim == 2 and len(t) > 1]
            if len(tables) == 2:
                # Row 1 holds cos and sin of position 1 times each frequency: the angle is the frequency itself.
                cos, sin = tables
                return tuple(map(float, np.arctan2(sin, cos)))
        raise _NotToldError("no node reads constant tables of cosines and sines")

    def maker(self, name: str) -> NodeProto | None:
        """Return the node that makes a value, behind those that only pass it on."""
        return self.index.node_of(self._origin(name))

    def final_cap(self) -> Found:
        """Return the cap of the logits, cap * tanh(logits / cap); 0 without one."""
        scaled = self.maker(self.logits)
        if scaled is None:
            raise _NotToldError(f"no node makes {self.logits!r}")
        # Mul(Tanh(Div(logits, cap)), cap): both numbers must be the same.
        capped = next((n for n in map(self.maker, scaled.input) if n and n.op_type == "Tanh"), None)
        if scaled.op_type != "Mul" or capped is None:
            return 0.0
        divided = self.maker(_nth(capped.input, 0))
        found = {self._single(scaled), divided and self._single(divided)}
        if len(found) != 1 or None in found:
            return f"{found}"
        return float(found.pop() or 0.0)

    def _single(self, node: NodeProto) -> float | None:
        """Return the one number that a node divides or multiplies by."""
        # exactly one scalar
        arrays = (constant_of(self.index, name) for name in node.input)
        numbers = [float(a.item()) for a in arrays if a is not None and a.size == 1]
        return numbers[0] if len(numbers) == 1 and node.op_type in ("Mul", "Div") else None

    @property
    def logits(self) -> str:
        outputs = list(self.index.outputs)
        return "logits" if "logits" in outputs else _nth(outputs, 0)

    @cached_property
    def embedding(self) -> NodeProto:
        """The node that looks up tokens."""
        for node in self._nodes(_ROWS, "looks up rows"):
            if operand(node, 1) in self.index.inputs:
                return node
        raise _NotToldError("no node looks up the rows of input_ids")

    def embedding_scale(self) -> Found:
        """Return what the embedding is multiplied by; 1 where nothing is."""
        for position in self.index.users(_nth(self.embedding.output, 0)):
            node = self.index.nodes[position]
            if node.op_type == "Mul" and (number := self._single(node)) is not None:
                return number
        if self.source.embedding() != 1.0:  # it may be multiplied into the table: not known
            raise _NotToldError(
                "no Mul by one number follows the embedding, whose table may hold it"
            )
        return 1.0

    def _origin(self, name: str) -> str:
        while self.index.operator_of(name) in _PASSING:
            name = _nth(self.index.nodes[self.index.producer[name]].input, 0)
        return name

    def size(self, axis: int) -> Found:
        """Return a size of the embedding's table, or what the logits have."""
        table = self.index.dense(self.embedding.input[0])
        # a table of packed integers has other sizes than its numbers
        if table is not None and len(table.dims) == 2 and table.data_type != TensorProto.UINT8:
            return float(table.dims[axis])
        width = self._width(self.logits if axis == 0 else _nth(self.embedding.output, 0))
        if not width:
            raise _NotToldError("the size of the embedding's table is not known")
        return width

    def tied(self) -> Found:
        """Return whether the head has the embedding's numbers: the same initializer, or a copy."""
        # the last product before the logits
        kinds = "MatMul", "Gemm", "MatMulNBits"
        before = self.index.in_order(self.index.ancestors([self.logits]))
        nodes = (self.index.nodes[position] for position in reversed(before))
        head = next((node for node in nodes if node.op_type in kinds), None)
        if head is None:
            raise _NotToldError(f"no product makes {self.logits!r}")
        # the embedding's table, and the head's
        table, weight = map(self._origin, (self.embedding.input[0], _nth(head.input, 1)))
        if table == weight:
            return "tied"
        one, two = (constant_of(self.index, name) for name in (table, weight))
        if (
            one is None
            or two is None
            or one.size > _SMALL
            or sorted(one.shape) != sorted(two.shape)
            or one.dtype != two.dtype
        ):
            raise _NotToldError(
                f"{table!r} and {weight!r} are not compared: one is computed, or they are large or of other dtypes or "
                "shapes"
            )
        equal = np.array_equal(one, two) or np.array_equal(one, two.T)  # the head may be transposed
        return "tied" if equal else "not tied"


def _nth(names: Sequence[str], number: int) -> str:
    """Return one of a node's inputs or outputs, or of the model's outputs."""
    if number < len(names):
        return names[number]
    raise _NotToldError("a node lacks an input or output, or the model has no outputs")


def _of_attention(attribute: str) -> Callable[[_Graph], str]:
    return lambda graph: f"{attribute} of {len(graph.attending)} {graph.attending[0].op_type}"


def _raised(_: _Graph) -> Found:
    raise _NotToldError("numbers alone do not tell: onnxdbg weights MODEL --against CHECKPOINT")


_Wanted = Callable[[_Source], Found | None] | tuple[str, ...]
_Where = Callable[[_Graph], str] | str
_Read = Callable[[_Graph], Found]


def _attribute(
    wanted: _Wanted, names: Sequence[str], default: float | None = None
) -> tuple[_Wanted, _Read, _Where]:
    """Return the row of an attribute of the nodes that attend; see `_Graph.settings`."""
    return wanted, lambda g: g.settings(names, default), _of_attention(names[0])


_FIELDS: Mapping[str, tuple[_Wanted, _Read, _Where]] = {
    "num_hidden_layers": (
        ("num_hidden_layers",),
        lambda g: float(len(g.attending)),
        "the number of nodes that attend",
    ),
    "num_attention_heads": _attribute(("num_attention_heads",), ("num_heads", "q_num_heads")),
    "num_key_value_heads": _attribute(
        ("num_key_value_heads", "num_attention_heads"), ["kv_num_heads"]
    ),
    "head_dim": (lambda s: s.head, _Graph.head, "the size of a head"),
    "attention scale": (_Source.scale, _Graph.scales, _of_attention("scale")),
    "sliding_window": _attribute(_Source.windows, ["local_window_size"], -1.0),
    "attn_logit_softcapping": _attribute(
        lambda s: s.number("attn_logit_softcapping") or 0.0, ["softcap"], 0.0
    ),
    "final_logit_softcapping": (
        lambda s: s.number("final_logit_softcapping") or 0.0,
        _Graph.final_cap,
        "the Tanh before the logits",
    ),
    "rms_norm_eps": (
        ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps"),
        _Graph.epsilons,
        "epsilon of the norms",
    ),
    "rotary frequencies": (_Source.frequencies, _Graph.frequencies, _Graph.base),
    "embedding scale": (
        _Source.embedding,
        _Graph.embedding_scale,
        "the Mul behind the embedding",
    ),
    "hidden_size": (
        ("hidden_size",),
        lambda g: g.size(1),
        "the columns of the embedding's table",
    ),
    "vocab_size": (
        ("vocab_size",),
        lambda g: g.size(0),
        "the rows of the embedding's table",
    ),
    "tie_word_embeddings": (
        lambda s: "tied" if s.config.get("tie_word_embeddings") is True else None,
        _Graph.tied,
        "the weights of the embedding and of the head",
    ),
    "norms with 1 + weight": (lambda s: 1.0 if s.is_gemma else None, _raised, ""),
}
"""Field -> what the configuration wants (None without a wish), what the graph has, and where that was read."""


def _same(wanted: Found, found: Found) -> bool:
    if isinstance(wanted, str) or isinstance(found, str):
        return wanted == found
    # One wanted number is compared with that of every node; a list must have the same length.
    one, two = map(np.atleast_1d, (wanted, found))
    if one.size > 1 and one.shape != two.shape:
        return False
    return bool(np.allclose(two, one, rtol=_CLOSE, atol=0))


def _text(value: Found) -> str:
    if isinstance(value, str):
        return value
    numbers = [f"{number:.6g}" for number in np.atleast_1d(value).tolist()]
    if len(set(numbers)) == 1:  # the same in all layers: once
        return numbers[0]
    middle = ["..."] * (len(numbers) > _SHOWN)
    return f"[{', '.join(numbers[: _SHOWN - 1] + middle + numbers[_SHOWN - 1 :][-1:])}]"
