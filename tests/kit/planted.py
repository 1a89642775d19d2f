"""What scripts plant: the failures of `scripts/bench reduce`, the faults of `scripts/packages`."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).parents[2] / "scripts"


def _module(name: str, folder: str) -> ModuleType:
    spec = spec_from_file_location(name, SCRIPTS / folder / f"{name}.py")
    found = module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


MODULE = _module("failures", "benchmarks")
FAILURES = MODULE.FAILURES
FAULTS = _module("faults", "packages").FAULTS
