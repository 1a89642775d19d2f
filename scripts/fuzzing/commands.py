"""Every command, with words that do something on the model that a mutant was made of."""

import shlex

from onnx import ModelProto

FILES = {
    "script.py": "def edit(graph):\n    for node in graph.nodes:\n        node.name += '_'\n",
    "recipe.toml": '[[step]]\nverb = "clean"\n\n[[step]]\nverb = "sort"\n',
    "text.txt": "g (float[2] x) => (float[2] y) { y = Relu(x) }",
    "secret": "secret",
}

LIGHT = """
inspect MODEL
inspect MODEL --node @0
inspect MODEL --value *
inspect MODEL --ops
inspect MODEL --tree
inspect MODEL --json
print MODEL
check MODEL
check MODEL --full --json
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
edit rename MODEL VALUE=renamed INPUT=given OUT
edit rename MODEL *=p/* OUT
edit remove MODEL @0 OUT
edit remove MODEL @1 --in-place
edit insert MODEL VALUE Abs OUT
edit insert MODEL OUTPUT Cast --attr to=1 OUT
edit replace MODEL --inputs VALUE --outputs OTHER --op Identity OUT
edit rewire MODEL VALUE INPUT OUT
edit set-op MODEL @0 Neg OUT
edit set-attr MODEL @0 axis=1 OUT
edit set-constant MODEL WEIGHT 0 OUT
edit promote MODEL WEIGHT OUT
edit freeze MODEL INPUT=0 --fold OUT
edit sort MODEL OUT
edit clean MODEL OUT
edit fix MODEL OUT
edit dedupe MODEL OUT
edit inline MODEL OUT
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
edit append MODEL "more = Relu(OUTPUT)" OUT
edit prepend MODEL "x = Relu(INPUT)" OUT
edit fold MODEL OUT
edit cse MODEL OUT
edit skip-noops MODEL OUT
edit dequantize MODEL OUT
edit infer MODEL OUT
edit simplify MODEL --unproved OUT
edit rewrite MODEL layer-norm OUT
edit gradient MODEL --of VALUE --to INPUT OUT
edit attribution MODEL --method saliency --of VALUE OUT
"""
"""Commands that start no runtime."""

HEAVY = """
run MODEL --save ran.npz LIMITS
run MODEL --fetch VALUE LIMITS
record MODEL -o refs LIMITS
compare MODEL recorded LIMITS
bisect MODEL --reference recorded LIMITS
bisect MODEL --against ORIGINAL -o culprit LIMITS
rank MODEL --against ORIGINAL LIMITS
rank MODEL --fp16-risk LIMITS
match MODEL ORIGINAL LIMITS
weights MODEL --against weights.npz
split MODEL --at VALUE LIMITS
edit rebatch MODEL OUT LIMITS
edit set-op MODEL @0 Neg --verify OUT LIMITS
diff ORIGINAL MODEL --run LIMITS
diff ORIGINAL MODEL --map auto LIMITS
repl MODEL LIMITS
"""
"""Commands that start the runtime."""

_WORDS = {
    "MODEL": "mutant.onnx",
    "ORIGINAL": "original.onnx",
    "OUT": "-o out.onnx",
    "LIMITS": "--timeout 5 --memory-limit 2GB",
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
    }
    lines = map(shlex.split, text.strip().splitlines())
    return [[new for word in words for new in _filled(word, names)] for words in lines]


def _filled(word: str, names: dict[str, str]) -> list[str]:
    if word in _WORDS:
        return _WORDS[word].split()
    return ["=".join(names.get(part, part) for part in word.split("="))]
