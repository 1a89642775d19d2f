"""Shared tools of the edit verbs: they keep order, names and declared types consistent."""
