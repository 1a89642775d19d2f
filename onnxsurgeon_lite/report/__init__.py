"""Result objects -> terminal text and JSON. Results go to stdout, everything else to stderr."""
