"""What all tests of causes need."""

import pytest

from onnxsurgeon_lite.debug.causes import finding


@pytest.fixture(autouse=True)
def enough_time(monkeypatch):
    """Let a search of causes take its time on a busy machine."""
    monkeypatch.setattr(finding, "SECONDS", 120.0)
