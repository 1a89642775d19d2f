"""The rooms of the package, lowest first."""

ROOMS = (
    "errors",
    "names",
    "remote",
    "plugins",
    "atomic",
    "shown",
    "search",
    "tensors",
    "model",
    "graph",
    "surgery",
    "runtime",
    "recording",
    "passes",
    "matching",
    "debug",
    "report",
    "api",
    "repl",
    "cli",
)
