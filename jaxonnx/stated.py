"""Every derivative that mathematics leaves open and jaxonnx states, a row each.

``docs/derivatives.md`` is written from it, and each row is tested in both modes and every type.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_INF = float("inf")
_NAN = float("nan")
_SCATTERED = ((6, 2), np.array([0, 0]), (5, 6))
_QUERY = ((((1, 2),),),)
_NOTHING = ((((0, 0),),),)
_UNSEEN = np.array([[False]])


@dataclasses.dataclass(frozen=True)
class Example:
    """One point at which a stated derivative is taken.

    Attributes:
        op: the name in :mod:`jaxonnx.ops`.
        inputs: what it is called with: numbers and nested tuples of them stand for floating arrays,
            arrays for themselves.
        expected: the derivative of the sum of the outputs by the input number ``by``.
        by: which input.
        attributes: keywords.
    """

    op: str
    inputs: tuple[Any, ...]
    expected: Any
    by: int = 0
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Row:
    """What is stated.

    Attributes:
        function: the operators.
        where: at which inputs.
        derivative: what it is there.
        torch: what PyTorch's is: ``"same"``, another one, or empty where it is not known or there
            is no such function.
        examples: points at which it is tested.
    """

    function: str
    where: str
    derivative: str
    torch: str
    examples: tuple[Example, ...]


def _at(op: str, x: Any, expected: Any, **attributes: Any) -> Example:
    """An operator of one input at ``x``."""
    return Example(op, (x,), expected, attributes=attributes)


def _by(op: str, inputs: tuple[Any, ...], *expected: Any, **attributes: Any) -> Iterator[Example]:
    """The derivatives by the first inputs, in order."""
    for k, value in enumerate(expected):
        yield Example(op, inputs, value, k, attributes)


KINKS = (
    Row("Relu", "0", "0", "same", (_at("relu", 0, 0),)),
    Row("LeakyRelu", "0", "`alpha`", "same", (_at("leaky_relu", 0, 0.25, alpha=0.25),)),
    Row(
        "PRelu",
        "0",
        "`slope` by the input, 0 by the slope",
        "same",
        (*_by("prelu", (0, 0.25), 0.25, 0),),
    ),
    Row("Elu", "0", "`alpha`", "same", (_at("elu", 0, 0.5, alpha=0.5),)),
    Row("Selu", "0", "`gamma * alpha`", "same", (_at("selu", 0, 3, alpha=1.5, gamma=2.0),)),
    Row("Celu", "0", "1", "same", (_at("celu", 0, 1, alpha=0.5),)),
    Row("ThresholdedRelu", "`alpha`", "0", "same", (_at("thresholded_relu", 2, 0, alpha=2.0),)),
    Row(
        "HardSigmoid",
        "both ends",
        "0",
        "same",
        (
            _at("hard_sigmoid", -2, 0, alpha=0.25, beta=0.5),
            _at("hard_sigmoid", 2, 0, alpha=0.25, beta=0.5),
        ),
    ),
    Row(
        "HardSwish",
        "-3 and 3",
        "0 and 1",
        "same",
        (_at("hard_swish", -3, 0), _at("hard_swish", 3, 1)),
    ),
    Row("Softsign", "0", "1", "same", (_at("softsign", 0, 1),)),
    Row(
        "Shrink",
        "`lambd` and `-lambd`",
        "0",
        "same",
        (_at("shrink", 0.5, 0, lambd=0.5), _at("shrink", -0.5, 0, lambd=0.5)),
    ),
    Row(
        "Clip",
        "at a bound, if min < max",
        "1 by the input, 0 by the bounds",
        "0 by numbers as bounds, equal shares by tensors",
        (*_by("clip", (0, 0, 2), 1, 0, 0), *_by("clip", (2, 0, 2), 1, 0, 0)),
    ),
    Row(
        "Clip",
        "beyond a bound",
        "1 by that bound",
        "same",
        (*_by("clip", (-1, 0, 2), 0, 1, 0), *_by("clip", (3, 0, 2), 0, 0, 1)),
    ),
    Row(
        "Clip",
        "everywhere, if min >= max",
        "1 by max, 0 by the others",
        "same, but 1 by the input at min = max",
        (*_by("clip", (1, 1, 1), 0, 0, 1), *_by("clip", (1, 2, 0), 0, 0, 1)),
    ),
    Row(
        "Abs, ReduceL1",
        "0",
        "0",
        "same",
        (_at("abs", 0, 0), _at("reduce_l1", (0, -1), (0, -1), keepdims=0)),
    ),
    Row(
        "LpNormalization with p = 1",
        "an element that is 0",
        "0 by the absolute value",
        "same",
        (_at("lp_normalization", (0, 2), (0.5, 0), axis=0, p=1),),
    ),
    Row(
        "Sign, Floor, Ceil, Round",
        "everywhere",
        "0",
        "same",
        (_at("sign", 0, 0), _at("floor", 1, 0), _at("ceil", 0.5, 0), _at("round", 0.5, 0)),
    ),
    Row(
        "Mod",
        "everywhere, also at the jumps",
        "1, and `-n` of `a - n * b`",
        "same as fmod",
        (
            *_by("mod", (7, 3), 1, -2, fmod=1),
            *_by("mod", (6, 3), 1, -2, fmod=1),
            *_by("mod", (-7, 3), 1, 2, fmod=1),
        ),
    ),
)
"""Where a function bends or jumps."""

TIES = (
    Row(
        "Max, Min",
        "`t` inputs tied",
        "1/t each",
        "same for two",
        (
            *_by("max", (1, 1), 0.5, 0.5),
            *_by("max", (2, 1, 2), 0.5, 0, 0.5),
            *_by("min", (1, 1, 1, 1), 0.25, 0.25, 0.25, 0.25),
        ),
    ),
    Row(
        "ReduceMax, ReduceMin",
        "ties",
        "equal shares",
        "same as amax, amin",
        (
            _at("reduce_max", (1, 2, 2), (0, 0.5, 0.5), keepdims=0),
            _at("reduce_min", (1, 1, 2), (0.5, 0.5, 0), keepdims=0),
        ),
    ),
    Row(
        "MaxPool, GlobalMaxPool, TopK",
        "ties",
        "all to the first",
        "same",
        (
            _at("max_pool", (((2, 2, 1),),), (((1, 0, 0),),), kernel_shape=(3,)),
            _at("global_max_pool", (((2, 2, 1),),), (((1, 0, 0),),)),
            Example("top_k", ((2, 2, 1), np.array([1])), (1, 0, 0)),
        ),
    ),
    Row(
        "RoiAlign, max",
        "ties",
        "all to the first",
        "",
        (
            Example(
                "roi_align",
                (((((1, 1), (1, 1)),),), ((0, 0, 1, 1),), np.array([0])),
                ((((0.25, 0), (0, 0)),),),
                attributes={
                    "mode": "max",
                    "output_height": 1,
                    "output_width": 1,
                    "sampling_ratio": 1,
                    "coordinate_transformation_mode": "output_half_pixel",
                },
            ),
        ),
    ),
    Row(
        "ScatterElements, ScatterND with max or min",
        "ties",
        "equal shares",
        "same",
        (
            Example("scatter_elements", _SCATTERED, (0.5, 1), 0, {"reduction": "max"}),
            Example("scatter_elements", _SCATTERED, (0, 0.5), 2, {"reduction": "max"}),
        ),
    ),
)
"""Where several elements share a maximum, or a place."""

EDGES = (
    Row(
        "Sqrt, Pow with an exponent below 1",
        "0 and -0",
        "infinity, as the limit says",
        "same, but minus infinity for Sqrt at -0",
        (_at("sqrt", 0, _INF), _at("sqrt", -0.0, _INF), *_by("pow", (0, 0.5), _INF, 0)),
    ),
    Row("Pow", "base 0, exponent 0", "0 by both", "same", (*_by("pow", (0, 0), 0, 0),)),
    Row(
        "Pow by the exponent",
        "base 0 or less",
        "0",
        "NaN below 0, minus infinity at 0 if the exponent is negative",
        (
            Example("pow", (-1, 2), 0, 1),
            Example("pow", (0, 2), 0, 1),
            Example("pow", (0, -1), 0, 1),
        ),
    ),
    Row(
        "ReduceL2, LpNormalization, LpPool, GlobalLpPool",
        "the norm is 0",
        "0",
        "same, but for LpNormalization",
        (
            _at("reduce_l2", (0, 0), (0, 0), keepdims=0),
            _at("lp_normalization", (0, 0), (0, 0), axis=0, p=2),
            _at("lp_pool", (((0, 0),),), (((0, 0),),), kernel_shape=(2,)),
            _at("global_lp_pool", (((0, 0),),), (((0, 0),),)),
        ),
    ),
    Row(
        "ReduceL2",
        "an element is infinite",
        "0",
        "NaN by that element",
        (_at("reduce_l2", (_INF, 1), (0, 0), keepdims=0),),
    ),
    Row(
        "Log, ReduceLogSum",
        "0",
        "infinity",
        "same",
        (_at("log", 0, _INF), _at("reduce_log_sum", (0, 0), (_INF, _INF), keepdims=0)),
    ),
    Row(
        "Reciprocal, Div by the divisor",
        "0",
        "minus infinity",
        "same",
        (_at("reciprocal", 0, -_INF), *_by("div", (1, 0), _INF, -_INF)),
    ),
    Row(
        "Asin, Atanh; Acos",
        "-1 and 1",
        "infinity; minus infinity",
        "same",
        (
            _at("asin", 1, _INF),
            _at("asin", -1, _INF),
            _at("atanh", 1, _INF),
            _at("atanh", -1, _INF),
            _at("acos", 1, -_INF),
            _at("acos", -1, -_INF),
        ),
    ),
    Row("Acosh", "1", "infinity", "same", (_at("acosh", 1, _INF),)),
    Row(
        "Asin, Acos, Acosh, Sqrt",
        "outside of the domain",
        "NaN",
        "same, but infinity for Acosh",
        (_at("asin", 2, _NAN), _at("acos", 2, _NAN), _at("acosh", -1, _NAN), _at("sqrt", -1, _NAN)),
    ),
    Row(
        "Log, Atanh",
        "outside of the domain",
        "that of the formula, `1/x` and `1/(1-x*x)`",
        "same",
        (_at("log", -1, -1), _at("atanh", 3, -0.125)),
    ),
    Row(
        "ReduceLogSumExp",
        "the result is infinite",
        "0",
        "NaN by what is infinite",
        (
            _at("reduce_log_sum_exp", (-_INF, -_INF), (0, 0), keepdims=0),
            _at("reduce_log_sum_exp", (_INF, 1), (0, 0), keepdims=0),
        ),
    ),
    Row(
        "ReduceProd, CumProd, Det",
        "factors that are 0, singular matrices",
        "the product of the other factors, the cofactors",
        "same, but 0 for Det",
        (
            _at("reduce_prod", (0, 2, 3), (6, 0, 0), keepdims=0),
            _at("reduce_prod", (0, 0, 3), (0, 0, 0), keepdims=0),
            Example("cum_prod", ((0, 2, 3), np.array(0)), (9, 0, 0)),
            _at("det", ((1, 2), (2, 4)), ((4, -2), (-2, 1))),
            _at("det", ((0, 0), (0, 0)), ((0, 0), (0, 0))),
        ),
    ),
)
"""Where a derivative is infinite, or there is no value."""

NUMBERS = (
    Row(
        "Max, Min, ReduceMax, ReduceMin",
        "NaN among the inputs",
        "0 by all",
        "1 by all, NaN for amax, amin",
        (
            *_by("max", (_NAN, 1), 0, 0),
            _at("reduce_max", (1, _NAN, 2), (0, 0, 0), keepdims=0),
        ),
    ),
    Row("Clip", "NaN", "1, as it passes", "same", (*_by("clip", (_NAN, 0, 2), 1, 0, 0),)),
    Row(
        "Softmax, LogSoftmax",
        "nothing but -infinity in a row",
        "NaN",
        "same",
        (
            _at("softmax", (-_INF, -_INF), (_NAN, _NAN)),
            _at("log_softmax", (-_INF, -_INF), (_NAN, _NAN)),
        ),
    ),
    Row(
        "Casts to floating types",
        "where float8 saturates",
        "0, else 1",
        "1",
        (_at("cast", 3, 1, to=17), _at("cast", 1e4, 0, to=17)),
    ),
    Row("Casts to integers, QuantizeLinear, QLinear operators", "everywhere", "0", "same", ()),
    Row(
        "Attention",
        "a query that sees nothing",
        "0",
        "same",
        (Example("attention", (_QUERY, _QUERY, _QUERY, _UNSEEN), _NOTHING),),
    ),
)
"""What has no number, or no room for it."""


def _grid(x: float, expected: float, **attributes: Any) -> Example:
    """Three pixels 1, 2 and 4 in a line, sampled at ``x``: the derivative by that place."""
    pixels, place = ((((1, 2, 4),),),), ((((x, 0),),),)
    options = {"align_corners": 1, **attributes}
    return Example("grid_sample", (pixels, place), ((((expected, 0),),),), 1, options)


SAMPLING = (
    Row(
        "GridSample, linear",
        "at the centre of a pixel",
        "that of the stretch behind it",
        "same",
        (_grid(0, 2),),
    ),
    Row(
        "GridSample, clamped to the border",
        "at the border and beyond",
        "0 by the grid",
        "same",
        (_grid(1, 0, padding_mode="border"), _grid(1.5, 0, padding_mode="border")),
    ),
    Row(
        "GridSample, nearest",
        "everywhere",
        "0 by the grid",
        "same",
        (_grid(0.5, 0, mode="nearest"),),
    ),
)
"""Samples between pixels."""

SECTIONS = {
    "At kinks": KINKS,
    "At ties": TIES,
    "At the edge of the domain": EDGES,
    "Without a number": NUMBERS,
    "Between pixels": SAMPLING,
}
"""All rows by the title of their table."""
