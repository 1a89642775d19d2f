"""Chain the rules of nodes, from an output back to the inputs: through bodies and sequences, too."""
