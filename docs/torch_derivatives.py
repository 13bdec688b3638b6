"""Print which of the derivatives in ``jaxonnx.stated`` are those of PyTorch.

``python docs/torch_derivatives.py`` needs torch, which nothing else here does. The last column of
the tables in ``docs/derivatives.md`` is what it prints.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from jaxonnx import stated

PLACES = torch.tensor([0, 0])


def _clip(x: Any, low: Any, high: Any) -> Any:
    return torch.clamp(x, low, high)


def _scatter(data: Any, places: Any, updates: Any, reduction: str = "none") -> Any:
    if reduction == "none":
        return data.scatter(0, places, updates)
    return data.scatter_reduce(0, places, updates, "a" + reduction)


def _hard_sigmoid(x: Any, **_: Any) -> Any:
    return functional.hardsigmoid(1.5 * x)  # whose ends are at -3 and 3, not at -2 and 2


def _grid_sample(x: Any, grid: Any, **options: Any) -> Any:
    flags = {**options, "align_corners": bool(options["align_corners"])}
    return functional.grid_sample(x, grid, **flags)


def _largest(*values: Any) -> Any:
    out = values[0]
    for value in values[1:]:
        out = torch.maximum(out, value)
    return out


SAME_NAME = ("abs", "acos", "acosh", "asin", "atanh", "ceil", "div", "floor", "log", "pow")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in (*SAME_NAME, "reciprocal", "round", "sign", "sqrt")},
    "attention": functional.scaled_dot_product_attention,
    "cast": lambda x, to: x.to({17: torch.float8_e4m3fn}[to]).to(x.dtype),
    "celu": functional.celu,
    "clip": _clip,
    "cum_prod": torch.cumprod,
    "det": torch.linalg.det,
    "elu": functional.elu,
    "global_lp_pool": lambda x: functional.lp_pool1d(x, 2, x.shape[-1]),
    "global_max_pool": lambda x: functional.adaptive_max_pool1d(x, 1),
    "grid_sample": _grid_sample,
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": functional.hardswish,
    "leaky_relu": functional.leaky_relu,
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "lp_normalization": lambda x, axis, p: functional.normalize(x, p, axis),
    "lp_pool": lambda x, kernel_shape: functional.lp_pool1d(x, 2, *kernel_shape),
    "max": _largest,
    "max_pool": lambda x, kernel_shape: functional.max_pool1d(x, *kernel_shape),
    "min": lambda *v: -_largest(*(-x for x in v)),
    "mod": lambda a, b, fmod: torch.fmod(a, b),
    "prelu": lambda x, slope: functional.prelu(x.reshape(1), slope.reshape(1)),
    "reduce_l1": lambda x, keepdims: x.norm(1),
    "reduce_l2": lambda x, keepdims: x.norm(2),
    "reduce_log_sum": lambda x, keepdims: x.sum().log(),
    "reduce_log_sum_exp": lambda x, keepdims: torch.logsumexp(x, 0),
    "reduce_max": lambda x, keepdims: torch.amax(x),
    "reduce_min": lambda x, keepdims: torch.amin(x),
    "reduce_prod": lambda x, keepdims: torch.prod(x),
    "relu": functional.relu,
    "scatter_elements": _scatter,
    "shrink": functional.hardshrink,
    "softmax": lambda x: torch.softmax(x, -1),
    "softsign": functional.softsign,
    "thresholded_relu": lambda x, alpha: functional.threshold(x, alpha, 0.0),
    "top_k": lambda x, k: torch.topk(x, int(k))[0],
}
"""PyTorch's functions by the names of ours; Selu has a fixed slope there."""


def derivative(example: stated.Example) -> Any:
    """PyTorch's derivative; None where it has no such function."""
    function = FUNCTIONS.get(example.op)
    if function is None:
        return None
    inputs = [
        torch.tensor(v) if isinstance(v, np.ndarray) else torch.tensor(v, dtype=torch.float32)
        for v in example.inputs
    ]
    inputs[example.by].requires_grad_()
    y = function(*inputs, **example.attributes)
    (given,) = torch.autograd.grad(y.sum(), inputs[example.by : example.by + 1])
    return given.numpy()


def main() -> None:
    """Print all rows, and under each what differs."""
    print(f"torch {torch.__version__}")
    for title, rows in stated.SECTIONS.items():
        print(f"\n{title}")
        for row in rows:
            found = [(e, derivative(e)) for e in row.examples]
            known = [(e, d) for e, d in found if d is not None]
            same = [np.array_equal(d, np.float32(e.expected), equal_nan=True) for e, d in known]
            print(f"  {row.function}, {row.where}: {sum(same)} of {len(found)} the same")
            for (e, d), equal in zip(known, same, strict=True):
                if not equal:
                    print(f"    {e.op}{e.inputs} by {e.by}: {d.tolist()}, ours {e.expected}")


if __name__ == "__main__":
    main()
