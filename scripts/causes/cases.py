"""The mistakes: network, mistake, exporter, references, and what the true cause is called."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    network: str
    bug: str
    exporter: str  # torchscript, dynamo
    references: str  # modules: of the torch modules; model: of the right export
    cause: str  # a pattern that the first cause's sentence fits

    @property
    def name(self) -> str:
        return f"{self.network}/{self.bug}, {self.exporter}, {self.references}"


_EPS, _GELU = r"epsilon|1e-05|is 0\.01", r"GELU \(erf\)|approximate|Erf|with Gelu"
_MISTAKES = (
    *(("gpt2", "eps", _EPS), ("gpt2", "eps_all", _EPS), ("gpt2", "gelu_tanh", _GELU), ("gpt2", "gelu_sigmoid", _GELU)),
    ("gpt2", "qkv_order", r"order|exchanged|one for the other|reads"),
    ("gpt2", "transposed", r"transposed"),
    ("gpt2", "zero_row", r"zero at \[7\]"),
    ("gpt2", "int8", r"rounded to int8"),
    ("gpt2", "bias_missing", r"bias"),
    ("gpt2", "scale_missing", r"1/sqrt\(8\)|0\.35355|missing|multiplied"),
    ("gpt2", "mask_value", r"mask|-1\b"),
    ("gpt2", "mask_off", r"mask|off by|triangle"),
    ("gpt2", "mask_missing", r"mask|triangle|Trilu|-1e\+09"),
    ("gpt2", "softmax_axis", r"axis of Softmax|axis"),
    ("gpt2", "qk_swapped", r"exchanged|one for the other|wrong order|reads"),
    ("gpt2", "position_shift", r"off by|moved by|Gather|reads|constant"),
    ("gpt2", "position_missing", r"not added"),
    ("gpt2", "residual_missing", r"not added"),
    ("gpt2", "post_norm", r"wrong place|reads"),
    ("gpt2", "half", r"float16|Cast|one too many|rounded"),
    ("bert", "eps_all", _EPS),
    ("bert", "gelu_relu", _GELU),
    ("bert", "activation_missing", _GELU),
    ("bert", "scale_square", r"1/sqrt|0\.35355|0\.125|sqrt"),
    ("bert", "qk_swapped", r"exchanged|one for the other|wrong order|reads"),
    ("bert", "bias_zero", r"zero"),
    ("resnet", "padding", r"pads"),
    ("resnet", "dilation", r"dilations"),
    ("resnet", "ceil_mode", r"ceil_mode|pads"),
    ("resnet", "avg_for_max", r"MaxPool"),
    ("resnet", "bgr", r"BGR|reversed|\[2, 1, 0\]|one too many"),
    ("resnet", "hw", r"one too many|transposed|Transpose|axes"),
    ("resnet", "not_normalized", r"255|one too many"),
    ("resnet", "oihw", r"in and out channels"),
    ("resnet", "kernel_hw", r"height and width"),
    ("resnet", "bn_eps", r"epsilon|scaled by output|differs|bias"),
    ("resnet", "bn_eps_all", r"epsilon|scaled by output|differs|bias"),
    ("resnet", "bn_mean", r"zero|bias|differs|Conv"),
    ("resnet", "relu_missing", r"Relu is missing|Relu"),
    ("resnet", "relu_before", r"wrong place|Relu"),
    ("resnet", "max_pooled", r"ReduceMean|GlobalAverage|mean"),
    ("resnet", "int8", r"rounded to int8"),
    ("vit", "eps", _EPS),
    ("vit", "position_shift", r"off by|moved by"),
    ("vit", "token_off", r"with 0|off by"),
    ("vit", "gelu_tanh", _GELU),
    ("unet", "nearest", r"mode"),
    ("unet", "align_corners", r"coordinate_transformation_mode"),
    ("unet", "concat_order", r"wrong order|exchanged|one for the other|order"),
    ("unet", "slope", r"alpha"),
    ("unet", "sigmoid_missing", r"Sigmoid"),
    ("lstm", "gates", r"gates|order"),
    ("lstm", "last_off", r"off by|with -1|is -2|with 8|is 7"),
    ("lstm", "zero_row", r"zero at \[2\]|zero"),
    ("translator", "rotary", r"halves|interleaved|split|order"),
    ("translator", "causal_missing", r"mask|triangle|Trilu"),
    ("translator", "cross_input", r"reads"),
    ("translator", "factor", r"0\.5|multiplied|one too many|with 1|is 0.5"),
)  # fmt: skip
_TWICE = (
    "eps",
    "eps_all",
    "gelu_tanh",
    "bias_missing",
    "scale_missing",
    "dilation",
    "relu_missing",
    "transposed",
    "residual_missing",
)


def cases() -> list[Case]:
    """Return every case; exporters and references take turns, some mistakes come twice."""
    found = []
    for number, (network, bug, cause) in enumerate(_MISTAKES):
        turns = [number % 4, (number + 1) % 4][: 2 if bug in _TWICE else 1]
        for turn in turns:
            exporter = ("torchscript", "dynamo")[turn % 2]
            references = ("model", "modules")[turn // 2]
            found.append(Case(network, bug, exporter, references, cause))
    return found


def held_back(case: Case, number: int) -> bool:
    """Return whether a case is one of the third that is not looked at while hypotheses are written."""
    return number % 3 == 2
