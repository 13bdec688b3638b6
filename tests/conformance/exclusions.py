"""What of ONNX's backend suite is not passed yet, and why; a case that passes fails the run."""

OPERATORS: dict[str, str] = {}
"""Operators without an implementation: every case with one of them is refused while loading."""

CASES: dict[str, str] = {}
"""Single cases."""
