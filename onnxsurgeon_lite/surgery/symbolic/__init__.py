"""Express every size of a model in the symbols of its inputs: `batch`, `4*seq`, `(H + 1)//2`."""
