"""Run model.onnx on test_data_set_0; exit with 1 if its outputs differ from the expected ones."""
import glob, os, sys, threading
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import numpy as np, onnx, onnxruntime as ort
os.chdir(os.path.dirname(os.path.abspath(__file__)))
def read(kind):
    files = sorted(glob.glob(f"test_data_set_0/{kind}_*.pb"))
    return {t.name: onnx.numpy_helper.to_array(t) for t in map(onnx.load_tensor, files)}
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
session = ort.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])
expected = read("output")
names = list(expected) or [output.name for output in session.get_outputs()]
actual = dict(zip(names, session.run(names, read("input"))))
same = [a.shape == expected[n].shape and np.allclose(a, expected[n], 0.0001, 1.3553296327590943e-05) for n, a in actual.items()]
print("agrees" if all(same) else "MISMATCH")
sys.exit(not all(same))
