"""Every verb, and its pass. A new one is a line here and in `__init__.pyi`."""

from onnxsurgeon_lite import passes

PASSES: dict[str, type[passes.Pass]] = {
    "batch-outputs": passes.BatchOutputs,
    "clean": passes.Clean,
    "dedupe": passes.Dedupe,
    "expose": passes.Expose,
    "extract": passes.Extract,
    "fix": passes.Fix,
    "freeze": passes.Freeze,
    "inline": passes.Inline,
    "insert": passes.Insert,
    "name-outputs": passes.NameOutputs,
    "opset": passes.Opset,
    "outline": passes.Outline,
    "pad-outputs": passes.PadOutputs,
    "promote": passes.Promote,
    "rebatch": passes.Rebatch,
    "remove": passes.Remove,
    "rename": passes.Rename,
    "replace": passes.Replace,
    "rewire": passes.Rewire,
    "script": passes.Script,
    "set-attr": passes.SetAttr,
    "set-constant": passes.SetConstant,
    "set-op": passes.SetOp,
    "set-shape": passes.SetShape,
    "sort": passes.Sort,
}
