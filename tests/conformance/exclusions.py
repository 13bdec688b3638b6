"""What of ONNX's backend suite is not passed yet, and why; a case that passes fails the run."""

_NUMPY = "the expected numbers are those of NumPy's generator"
OPERATORS: dict[str, str] = {}
"""Operators that nothing implements: every case with one of them is refused while loading."""

CASES: dict[str, str] = {
    **{
        f"test_training_dropout{suffix}": _NUMPY
        for suffix in ("", "_default", "_default_mask", "_mask")
    },
    **{
        f"test_bernoulli{suffix}": _NUMPY
        for suffix in ("", "_double", "_double_expanded", "_expanded", "_seed", "_seed_expanded")
    },
    "test_attention_4d_causal_fp16_expanded": (
        "two values are 2 units in the last place off those expected, which are further from the "
        "exact ones: XLA rounds to half precision less often than NumPy"
    ),
}
"""Single cases, of which a value differs from the expected one."""
