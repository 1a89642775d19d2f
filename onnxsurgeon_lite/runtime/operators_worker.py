"""Print what operators onnxruntime has, as JSON; run as a script, in a process of its own."""

import json
import os
import sys
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema  # noqa: E402


def _formals(formals: list[Any]) -> list[tuple[str, str, str, bool]]:
    return [(f.name, f.typeStr, f.option.name, f.isHomogeneous) for f in formals]


if __name__ == "__main__":
    operators = [
        {
            "key": (schema.name, schema.domain, schema.since_version),
            "inputs": _formals(schema.inputs),
            "outputs": _formals(schema.outputs),
            "types": [(c.type_param_str, c.allowed_type_strs, "") for c in schema.type_constraints],
            "attributes": [
                (name, a.type.name, a.required, a._default_value.hex())
                for name, a in schema.attributes.items()
            ],
        }
        for schema in get_all_operator_schema()
    ]
    json.dump(operators, sys.stdout)
