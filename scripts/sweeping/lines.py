"""What each verb is asked to do, so that the values of the model are known afterwards: a line for each.

A line has the commands, separated by ` ; `, with names of the model in capitals, and after ` : ` what to expect.
A model without such a name (no weight, no float) is not asked. By default a value of the result has the numbers that
the value of its name has in the model, every node and weight is there, and nothing of it is lost.

    removes       nodes, weights and declarations may go
    retyped       declared types may change; feeds are cast to them
    resized       declared types may change, and constants that hold a size may be computed
    padded        so may the shapes of outputs
    near          numbers are rounded to half precision or to integers
    by-position   inputs and outputs have other names
    back          the result is the model, field by field
    twice         inputs and outputs of prefix b/ are those without it
    once          the result has the first feeds inside: no others are run
    NHWC          the input is transposed
    trains        what trains has other values
    shallower     a layer is gone: values have other numbers, of the same shapes and dtypes
    runtime       operators of onnxruntime come in, which onnx.checker does not know
    looks         nothing is written
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LINES = """
inspect MODEL --json : looks
check MODEL --full : looks
diff MODEL MODEL : looks
extract MODEL --outputs VALUE OUT : removes
extract MODEL --inputs VALUE --auto-inputs OUT : removes
expose MODEL --all OUT
split MODEL --at VALUE -o model.parts : looks
merge MODEL MODEL --prefix b/ OUT : twice
print MODEL --weights WEIGHTS > TEXT ; build TEXT --weights WEIGHTS OUT : back
convert MODEL --to float16 OUT : removes retyped near
convert MODEL --to float16 --io OUT : removes retyped near
convert MODEL --to bfloat16 OUT : removes retyped near
data embed MODEL OUT : back
data external MODEL OUT : back
data strip MODEL --keep-sources MID ; data unstrip MID MODEL OUT : back
weights MODEL --update weights.npz OUT : back
edit add-constant MODEL sweep_three=3 OUT
edit annotate MODEL NODE sweep_key=yes OUT
edit append MODEL "sweep_more = Identity(OUTPUT)" OUT : removes
edit apply recipe.toml MODEL OUT : removes
edit attribution MODEL --method saliency --of OUTPUT --to INPUT OUT : removes
edit batch-outputs MODEL --max 9 all=OUTPUT OUT : removes padded
edit clean MODEL OUT : removes
edit cse MODEL OUT : removes
edit dedupe MODEL OUT : removes
edit dequantize MODEL OUT : removes near
edit drop-layer MODEL 0 OUT : removes shallower
edit fix MODEL OUT
edit fold MODEL OUT : removes
edit freeze MODEL INPUT=input.npy OUT : once
edit freeze MODEL INPUT=input.npy --fold OUT : once removes
edit gradient MODEL --of OUTPUT --to INPUT OUT : removes
edit infer MODEL OUT
edit inline MODEL OUT : removes
edit insert MODEL VALUE Identity OUT
edit insert MODEL OUTPUT Identity --before OUT
edit name-outputs MODEL first OUT : by-position
edit opset MODEL NEXT OUT : removes
edit opset MODEL PREVIOUS OUT : removes
edit opset MODEL 13 OUT : removes
edit opset MODEL LATEST OUT : removes
edit outline MODEL layer.0 OUT : removes
edit outline MODEL layer.0 MID ; edit inline MID OUT : removes
edit pad-outputs MODEL --max 9 --outputs OUTPUT OUT : removes padded
edit prepend MODEL "INPUT = Identity(INPUT)" OUT
edit promote MODEL WEIGHT OUT : removes
edit promote MODEL WEIGHT --default OUT
edit promote MODEL WEIGHT MID ; edit freeze MID WEIGHT=weight.npy OUT
edit rebatch MODEL OUT : resized
edit remove MODEL NODE OUT : looks
edit insert MODEL VALUE Identity --name sweep_new MID ; edit remove MID sweep_new OUT : back
edit promote MODEL WEIGHT --default MID ; edit remove-input MID WEIGHT OUT
edit remove-output MODEL OUTPUT OUT
edit rename MODEL *=p/* OUT : by-position
edit rename MODEL *=p/* MID ; edit rename MID p/*=* OUT : back
edit rename MODEL *=p/* --node OUT
edit reorder MODEL --outputs OUTPUT OUT
extract MODEL --inputs IN --outputs MADE MID ; edit replace MODEL --inputs IN --outputs MADE --model MID OUT : removes
edit rewire MODEL VALUE VALUE OUT
edit insert MODEL VALUE Identity --value sweep_copy MID ; edit rewire MID sweep_copy VALUE OUT
edit rewrite MODEL RULES OUT : removes
edit script script.py MODEL OUT
edit set MODEL metadata.sweep_key=yes OUT
edit set MODEL NODE metadata.sweep_key=yes OUT
edit insert MODEL VALUE LeakyRelu --attr alpha=0.5 --name sweep_new MID ; edit set-attr MID sweep_new alpha=1.0 OUT
edit insert MODEL VALUE Neg --name sweep_new MID ; edit set-op MID sweep_new Identity OUT
edit set-constant MODEL WEIGHT weight.npy OUT
edit set-layout MODEL INPUT=NHWC OUT : NHWC resized
edit set-shape MODEL INPUT=SIZES OUT : resized once
edit set-shape MODEL INPUT=SYMBOLS OUT : resized once
edit set-type MODEL REAL=double OUT : retyped
edit set-type MODEL FED=double OUT : retyped
edit simplify MODEL OUT : removes
edit skip-noops MODEL OUT : removes
edit sort MODEL OUT
edit standardize MODEL OUT : removes near
edit fuse MODEL OUT : removes near runtime
edit unshare MODEL WEIGHT OUT
edit inference MODEL OUT : trains
"""

FILES = {
    "script.py": "def edit(graph):\n    graph.toposort()\n",
    "recipe.toml": "".join(f'[[step]]\nverb = "{verb}"\n' for verb in ("fix", "fold", "clean", "cse", "sort", "infer")),
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """Commands for one model, and what to expect of the model that the last one writes."""

    verb: str
    commands: tuple[tuple[str, ...], ...]
    expect: frozenset[str]
    out: str

    @property
    def text(self) -> str:
        """What to type."""
        return "; ".join(" ".join(["onnxdbg", *map(_quoted, words)]) for words in self.commands)


def verb_of(line: str) -> str:
    """The verb of a line: that which the line is there for is its last command's."""
    words = line.partition(" : ")[0].split(" ; ")[-1].split()
    if words[0] in ("edit", "data"):
        return words[1] if words[0] == "edit" else " ".join(words[:2])
    return " ".join([words[0], *words[2:4]]) if words[0] == "convert" else words[0]


def steps(names: Mapping[str, str], only: frozenset[str], turn: int) -> Iterator[Step]:
    """Yield a line of each verb for which a model has the names; where there are several, every other in turn."""
    seen: Counter[str] = Counter()
    counts = Counter(map(verb_of, LINES.strip().splitlines()))
    for number, line in enumerate(LINES.strip().splitlines()):
        verb = verb_of(line)
        seen[verb] += 1
        in_turn = counts[verb] == 1 or (seen[verb] + turn) % 2
        if verb not in only if only else not in_turn:
            continue
        text, _, expect = line.partition(" : ")
        out = f"out.{number}.onnx"
        known = {"MODEL": "model.onnx", "OUT": f"-o\0{out}", "TEXT": f"out.{number}.txt", **names}
        known["WEIGHTS"] = f"out.{number}.safetensors"
        commands = []
        for position, command in enumerate(text.split(" ; ")):
            known["MID"] = f"out.{number}000.onnx" if position else f"-o\0out.{number}000.onnx"
            commands.append(_filled(command, known))
        if all(commands):
            yield Step(verb_of(line), tuple(commands), frozenset(expect.split()), out)


_NAMES = re.compile(r"\b(?!NHWC)[A-Z]{2,}\b")


def _filled(command: str, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words of a command; none where the model lacks a name."""
    if any(name not in names for name in _NAMES.findall(command)):
        return ()
    filled = (_NAMES.sub(lambda found: names[found[0]], word) for word in shlex.split(command))
    return tuple(word for each in filled for word in each.split("\0"))


def _quoted(word: str) -> str:
    return shlex.quote(word) if word != ">" else word
