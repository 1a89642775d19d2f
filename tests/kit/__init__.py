"""What several test files share: where things are, how the command is called, and one module for each kind of help."""

import sys
from pathlib import Path

from onnxsurgeon_lite import RuntimeOptions

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
COMMAND = [sys.executable, "-m", "onnxsurgeon_lite"]
AS_WRITTEN = RuntimeOptions(opt="none", lean=True)
