"""Patterns of nodes: rules as ONNX text, their conditions, their matches in a graph, and what nearly matches."""

from onnxsurgeon_lite.graph.patterns.closest import closest
from onnxsurgeon_lite.graph.patterns.match import Match, Matcher, find_all
from onnxsurgeon_lite.graph.patterns.rule import Rule, Side, read_rules

__all__ = ["Match", "Matcher", "Rule", "Side", "closest", "find_all", "read_rules"]
