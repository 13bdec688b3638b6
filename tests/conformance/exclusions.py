"""What of ONNX's backend suite is not passed yet, and why; a case that passes fails the run."""

_RANDOM = ("Bernoulli", "RandomUniformLike")
OPERATORS: dict[str, str] = {
    **dict.fromkeys(_RANDOM, "random numbers are not there yet"),
    "ai.onnx.preview.training::Gradient": "derivatives inside a model are not there yet",
    "ImageDecoder": "it decodes files, which needs an image library",
}
"""Operators that nothing implements: every case with one of them is refused while loading."""

CASES: dict[str, str] = {
    **{
        f"test_training_dropout{suffix}": "the expected mask is that of NumPy's generator"
        for suffix in ("", "_default", "_default_mask", "_mask")
    },
    "test_attention_4d_causal_fp16_expanded": (
        "two values are 2 units in the last place off those expected, which are further from the "
        "exact ones: XLA rounds to half precision less often than NumPy"
    ),
}
"""Single cases, of which a value differs from the expected one."""
