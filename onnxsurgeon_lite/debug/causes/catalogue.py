"""The tables of what people mistake for each other, which `mistakes.toml` holds."""

import tomllib
from pathlib import Path
from typing import Any

MISTAKES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8")
)
