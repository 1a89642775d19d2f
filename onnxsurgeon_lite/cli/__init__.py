"""The command `onnxdbg`."""


def main() -> None:
    """Run the command line."""
    from onnxsurgeon_lite.cli.app import app

    app()
