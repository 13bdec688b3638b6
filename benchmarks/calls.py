"""Microseconds of a call against the number of parameters, beside onnxruntime.

    python benchmarks/calls.py

The models add so little that a call is what it costs to get in and out.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

import jaxonnx

ROUNDS = 21
CALLS = 200
PARAMETERS = (2, 20, 200)


def chain(count: int) -> bytes:
    """``x`` with ``count`` vectors of 16 numbers added, one after the other."""
    values = np.linspace(-1, 1, 16, dtype=np.float32)
    names = ["x", *(f"h{k}" for k in range(1, count)), "y"]
    graph = helper.make_graph(
        [helper.make_node("Add", [names[k], f"w{k}"], [names[k + 1]]) for k in range(count)],
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 16])],
        [helper.make_tensor(f"w{k}", TensorProto.FLOAT, [16], values) for k in range(count)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return model.SerializeToString()


def session(source: bytes) -> Callable[[np.ndarray], Any]:
    """The same model in onnxruntime, with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    runs = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return lambda x: runs.run(None, {"x": x})


def microseconds(function: Callable[[Any], Any], x: Any) -> float:
    """The mean of a few calls in a row."""
    start = time.perf_counter()
    result = function(x)
    for _ in range(CALLS - 1):
        result = function(x)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> None:
    """Measure in turn, and print medians."""
    x = np.ones((1, 16), np.float32)
    functions: dict[tuple[int, str], Callable[[Any], Any]] = {}
    for count in PARAMETERS:
        source = chain(count)
        model = jaxonnx.load(source)
        functions[count, "jaxonnx"] = model
        functions[count, "jaxonnx, in a user's jit"] = _jitted(model)
        functions[count, "onnxruntime"] = session(source)
    for function in functions.values():
        microseconds(function, x)  # compiles; not counted
    found: dict[tuple[int, str], list[float]] = {key: [] for key in functions}
    for _ in range(ROUNDS):
        for key, function in functions.items():
            found[key].append(microseconds(function, x))
    ways = list(dict.fromkeys(way for _, way in functions))
    table = Table("parameters", *ways, title=f"µs a call, medians of {ROUNDS}")
    for count in PARAMETERS:
        table.add_row(str(count), *(f"{statistics.median(found[count, w]):.0f}" for w in ways))
    Console().print(table)


def _jitted(model: jaxonnx.Model) -> Callable[[Any], Any]:
    function = jax.jit(lambda model, x: model(x))
    return lambda x: function(model, x)


if __name__ == "__main__":
    main()
