"""`python -m onnxsurgeon_lite` is `onnxdbg`."""

from onnxsurgeon_lite.cli import main

main()
