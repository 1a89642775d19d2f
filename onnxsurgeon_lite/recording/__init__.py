"""Tensors from elsewhere: from an ONNX model, a PyTorch module, a checkpoint."""
