"""`onnxdbg repl`: commands and Python on a model, at a prompt, in a notebook, or from a script."""
