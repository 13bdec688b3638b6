"""The command ``jaxonnx``."""
