"""``python -m jaxonnx``."""

from jaxonnx.cli import main

main()
