"""Reverse-mode differentiation: the nodes that compute gradients, written behind a graph's own.

`tape` writes nodes, `step` reads the node at hand, `rules/` has the gradient of each operator, `reverse_mode/`
chains them; `expansion` differentiates an operator by the nodes that define it.
"""
