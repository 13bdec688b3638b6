"""What of ONNX's backend suite is not passed yet, and why; a case that passes fails the run."""

import ml_dtypes
import numpy as np

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


def _casts_depend_on_the_processor() -> bool:
    """Whether NumPy's casts of floats that are out of range differ from the usual, their low bits.

    ONNX leaves the result open, and its suite has what NumPy gives where it is collected.
    """
    values = np.array([1, -2, -1, 0, 1, -3, 2], np.float32)
    with np.errstate(invalid="ignore"):
        return values.astype(ml_dtypes.int2).tolist() != [1, -2, -1, 0, 1, 1, -2]


if _casts_depend_on_the_processor():
    CASES |= {
        f"test_{op}_{source}_to_{target}{suffix}": (
            "the numbers are out of range, and what NumPy makes of them depends on the processor"
        )
        for op, suffix in (("cast", ""), ("castlike", ""), ("castlike", "_expanded"))
        for source in ("FLOAT", "FLOAT16")
        for target in ("INT2", "INT4", "UINT2", "UINT4")
    }
