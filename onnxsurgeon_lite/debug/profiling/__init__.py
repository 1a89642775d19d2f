"""What every node, operator and module of a model costs: time, arithmetic, bytes, memory."""
