"""Every command, with words that do something on the model that a mutant was made of.

Words in capitals are replaced: MODEL and ORIGINAL by the mutant and what it was made of, INPUT, OUTPUT, VALUE, OTHER
and WEIGHT by names of the model, OUT and LIMITS by options, PROMPT by a line for the prompt of `repl`.
"""

import shlex

from onnx import ModelProto

FILES = {
    "script.py": "def edit(graph):\n    for node in graph.nodes:\n        node.name += '_'\n",
    "recipe.toml": "".join(
        f'[[step]]\nverb = "{verb}"\n' for verb in ("fix", "fold", "clean", "cse", "sort", "infer")
    ),
    "text.txt": "g (float[2] x) => (float[2] y) { y = Relu(x) }",
    "suite.toml": '[[check]]\nmodel = "mutant.onnx"\nreference = "recorded"\n',
    "config.json": '{"num_hidden_layers": 2, "hidden_size": 4, "num_attention_heads": 2, "vocab_size": 8}',
    "secret": "secret",
}

LIGHT = """
inspect MODEL
inspect MODEL --node @0
inspect MODEL --value *
inspect MODEL --ops
inspect MODEL --tree
inspect MODEL --json
inspect MODEL --html out.html
view MODEL --no-open -o out.html
print MODEL
check MODEL
check MODEL --full --json
check MODEL --config config.json
diff ORIGINAL MODEL
diff MODEL ORIGINAL --json
diff MODEL MODEL
extract MODEL --inputs VALUE --auto-inputs OUT
extract MODEL --outputs OTHER OUT
expose MODEL --all OUT
expose MODEL VALUE -o no/folder/out.onnx
convert MODEL --to float16 OUT
convert MODEL --to bfloat16 --io --tolerance 0.1 LIMITS OUT
merge MODEL ORIGINAL --prefix b/ OUT
merge ORIGINAL MODEL --map OUTPUT=INPUT --prefix b/ OUT
build text.txt OUT
data ls MODEL --json
data embed MODEL OUT
data external MODEL OUT
data strip MODEL OUT
data unstrip MODEL ORIGINAL OUT
data unstrip ORIGINAL MODEL OUT
data move MODEL moved.data
data gc MODEL
data manifest MODEL --force
data link MODEL weights.npz OUT
edit rename MODEL VALUE=renamed INPUT=given OUT
edit rename MODEL *=p/* OUT
edit remove MODEL @0 OUT
edit remove MODEL @1 --in-place
edit drop-layer MODEL 0 OUT
edit remove MODEL scope:* OUT
edit insert MODEL VALUE Abs OUT
edit insert MODEL OUTPUT Cast --attr to=1 OUT
edit replace MODEL --inputs VALUE --outputs OTHER --op Identity OUT
edit replace MODEL --inputs VALUE --outputs OTHER --model original.onnx OUT
edit replace ORIGINAL --inputs VALUE --outputs OTHER --model mutant.onnx OUT
edit rewire MODEL VALUE INPUT OUT
edit set-op MODEL @0 Neg OUT
edit set-attr MODEL @0 axis=1 OUT
edit insert MODEL VALUE Add --input VALUE --input more --constant more=1 --before OUT
edit set-constant MODEL WEIGHT 0 OUT
edit set-constant MODEL WEIGHT 0 --to @0 OUT
edit promote MODEL WEIGHT OUT
edit promote MODEL WEIGHT --default OUT
edit freeze MODEL INPUT=0 --fold OUT
edit sort MODEL OUT
edit clean MODEL OUT
edit fix MODEL OUT
edit dedupe MODEL OUT
edit unshare MODEL OUT
edit inline MODEL OUT
edit inference MODEL OUT
edit outline MODEL layer OUT
edit opset MODEL 23 OUT
edit opset MODEL 13 OUT
edit script script.py MODEL OUT
edit apply recipe.toml MODEL OUT
edit set-shape MODEL INPUT=2,4 --unproved OUT
edit rebatch MODEL --unproved OUT
edit pad-outputs MODEL --max 5 OUT
edit batch-outputs MODEL --max 5 OUT
edit name-outputs MODEL first OUT
edit set-type MODEL OUTPUT=double OUT
edit set-layout MODEL INPUT=NHWC OUT
edit remove-input MODEL INPUT OUT
edit remove-output MODEL OUTPUT OUT
edit reorder MODEL --outputs OUTPUT OUT
edit add-constant MODEL three=3 OUT
edit set MODEL producer_name=me OUT
edit set MODEL @0 name=renamed OUT
edit annotate MODEL @0 layer_ann=tail OUT
edit append MODEL "more = Relu(OUTPUT)" OUT
edit prepend MODEL "x = Relu(INPUT)" OUT
edit fold MODEL OUT
edit cse MODEL OUT
edit skip-noops MODEL OUT
edit dequantize MODEL OUT
edit standardize MODEL OUT
edit fuse MODEL OUT
edit infer MODEL OUT
edit simplify MODEL --unproved OUT
edit rewrite MODEL layer-norm gelu-erf attention OUT
edit rewrite MODEL silu --reverse OUT
edit gradient MODEL --of VALUE --to INPUT OUT
edit gradient MODEL --of OUTPUT --wrt-weights --vector seed OUT
edit attribution MODEL --method saliency --of VALUE OUT
edit attribution MODEL --method integrated-gradients --target input OUT
edit attribution MODEL --method gradcam --target 0 --layer VALUE OUT
"""
"""Commands that start no runtime."""

HEAVY = """
run MODEL --save ran.npz LIMITS
run MODEL --fetch VALUE --feeds recorded LIMITS
record MODEL -o refs LIMITS
record MODEL -o refs --inner LIMITS
record MODEL -o refs --float64 LIMITS
compare MODEL recorded LIMITS
compare MODEL recorded --map auto --json LIMITS
bisect MODEL --reference recorded -o culprit --repair out.onnx LIMITS
bisect MODEL --against ORIGINAL -o culprit --journal journal LIMITS
bisect ORIGINAL --against MODEL -o culprit --quick LIMITS
bisect MODEL --find nan -o culprit LIMITS
bisect MODEL --a opt=none --b opt=all -o culprit LIMITS
reduce MODEL --fails error -o reduced LIMITS
rank MODEL --against ORIGINAL LIMITS
rank MODEL --reference recorded --json LIMITS
rank MODEL --against ORIGINAL --leave-one-out LIMITS
test --config suite.toml LIMITS
rank MODEL --against ORIGINAL --by output LIMITS
rank MODEL --fp16-risk LIMITS
profile MODEL --runs 1 LIMITS
inspect MODEL --placement LIMITS
inspect MODEL --optimized LIMITS
match MODEL ORIGINAL --save map.json LIMITS
match recorded MODEL LIMITS
weights MODEL --against weights.npz
weights MODEL --update weights.npz OUT
split MODEL --at VALUE LIMITS
edit rebatch MODEL OUT LIMITS
edit simplify MODEL OUT LIMITS
edit set-shape MODEL INPUT=2,4 OUT LIMITS
edit opset MODEL 13 OUT LIMITS
edit set-op MODEL @0 Neg --verify OUT LIMITS
edit gradient MODEL --of OUTPUT --to INPUT --verify OUT LIMITS
diff ORIGINAL MODEL --run LIMITS
diff ORIGINAL MODEL --map auto LIMITS
repl MODEL --reference recorded LIMITS -c PROMPT
repl MODEL LIMITS
"""
"""Commands that start the runtime."""

LIMITS = "--timeout 5 --memory-limit 2GB"
_PROMPT = (
    "b @1; run; where; l; p {0}; s; out; compare {0}; set {0} = 0; heal {0}; why; restart; c; "
    "edit clean; undo; save out.onnx"
)
_WORDS = {
    "MODEL": "mutant.onnx",
    "ORIGINAL": "original.onnx",
    "OUT": "-o out.onnx",
    "LIMITS": LIMITS,
}


def commands(text: str, model: ModelProto) -> list[list[str]]:
    """Return the words of each command, with names of the model."""
    graph = model.graph
    made = [name for node in graph.node for name in node.output] * 2
    weights = [tensor.name for tensor in graph.initializer] or made
    names = {
        "INPUT": graph.input[0].name,
        "VALUE": made[0],
        "OTHER": made[1],
        "OUTPUT": graph.output[0].name,
        "WEIGHT": weights[0],
        "PROMPT": _PROMPT.format(made[0]),
    }
    lines = map(shlex.split, text.strip().splitlines())
    return [[new for word in words for new in _filled(word, names)] for words in lines]


def _filled(word: str, names: dict[str, str]) -> list[str]:
    if word in _WORDS:
        return _WORDS[word].split()
    return ["=".join(names.get(part, part) for part in word.split("="))]
