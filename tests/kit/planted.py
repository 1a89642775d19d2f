"""The planted failures of `scripts/bench reduce`."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

PLACE = Path(__file__).parents[2] / "scripts" / "benchmarks" / "failures.py"
SPEC = spec_from_file_location("failures", PLACE)
MODULE = module_from_spec(SPEC)
sys.modules["failures"] = MODULE
SPEC.loader.exec_module(MODULE)
FAILURES = MODULE.FAILURES
