"""The command `onnxdbg`."""


def main() -> None:
    """Run the command line."""
    import gc

    from onnxsurgeon_lite.cli.app import app

    gc.disable()  # a short process: looking for cycles among the objects of a large graph only takes time
    app()
