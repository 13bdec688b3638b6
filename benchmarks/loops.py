"""Compile time of a Loop against its number of iterations.

    python benchmarks/loops.py

A Loop whose trip count is known becomes one scan, so 1,000 iterations compile as fast as 10.
"""

import statistics
import time

import jax
import numpy as np
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

import jaxonnx

ROUNDS = 7
TRIPS = (10, 1000)


def loop_model(trips: int) -> bytes:
    """``x`` through ``trips`` rounds of ``tanh(x @ w)``, all of them stacked as well."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["again"]),
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Tanh", ["h"], ["next"]),
            helper.make_node("Identity", ["next"], ["row"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 8]),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [8, 8]),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, [8, 8]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "x0"], ["last", "rows"], body=body)],
        "loop",
        [
            helper.make_tensor_value_info("x0", TensorProto.FLOAT, [8, 8]),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [8, 8]),
        ],
        [
            helper.make_tensor_value_info("last", TensorProto.FLOAT, [8, 8]),
            helper.make_tensor_value_info("rows", TensorProto.FLOAT, None),
        ],
        [helper.make_tensor("trips", TensorProto.INT64, [], [trips])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return model.SerializeToString()


def compile_seconds(trips: int) -> float:
    """Seconds to trace, lower and compile the model once, from nothing."""
    model = jaxonnx.load(loop_model(trips))
    values = {name: np.eye(8, dtype=np.float32) for name in model.input_names}
    jax.clear_caches()
    start = time.perf_counter()
    jax.jit(model).lower(values).compile()
    return time.perf_counter() - start


def main() -> None:
    """Measure in turn, and print medians and their ratio."""
    seconds: dict[int, list[float]] = {trips: [] for trips in TRIPS}
    for trips in TRIPS:
        compile_seconds(trips)  # not counted
    for _ in range(ROUNDS):
        for trips in TRIPS:
            seconds[trips].append(compile_seconds(trips))
    table = Table("iterations", "trace, lower and compile", title=f"medians of {ROUNDS}")
    for trips, values in seconds.items():
        table.add_row(f"{trips:,}", f"{statistics.median(values) * 1e3:.0f} ms")
    Console().print(table)
    pairs = zip(*(seconds[t] for t in TRIPS), strict=True)
    ratio = statistics.median(long / short for short, long in pairs)
    Console().print(f"ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
