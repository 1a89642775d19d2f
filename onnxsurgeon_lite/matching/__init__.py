"""Match and compare tensor sets, nodes, values, weights and models; prove that models agree."""
