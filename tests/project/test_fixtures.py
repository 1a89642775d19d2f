"""The fixtures are what their script writes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_fixtures_are_what_the_script_writes():
    command = [sys.executable, str(ROOT / "scripts" / "make_fixtures.py"), "--check"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
