"""Patterns of nodes: rules as ONNX text, their conditions, their matches in a graph, and what nearly matches."""

from onnxsurgeon_lite.graph.patterns.closest import closest
from onnxsurgeon_lite.graph.patterns.match import Match, Matcher, find_all, matchers_of
from onnxsurgeon_lite.graph.patterns.rule import Rule, read_rules, reversed_rules
from onnxsurgeon_lite.graph.patterns.side import PatternGraph

__all__ = [
    "Match",
    "Matcher",
    "PatternGraph",
    "Rule",
    "closest",
    "find_all",
    "matchers_of",
    "read_rules",
    "reversed_rules",
]
