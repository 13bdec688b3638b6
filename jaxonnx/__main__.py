"""``python -m jaxonnx``."""

from jaxonnx.cli.commands import main

main()
