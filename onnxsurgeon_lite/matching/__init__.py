"""Two things side by side: sets, nodes, values, weights, models; proofs that they agree."""
