"""Bisect a mismatch to its nodes and reasons: looks, search, verdicts, reproducer."""
