"""Record tensors from an ONNX model, a PyTorch module or a checkpoint."""
