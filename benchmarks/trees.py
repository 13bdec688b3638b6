"""An ensemble of 500 trees of depth 8 on 10,000 rows, against onnxruntime in the same run.

    python benchmarks/trees.py

Both run in turn, onnxruntime on two threads; for jaxonnx, run it under ``taskset -c 0,1`` where
there are more. Medians are printed, and that of the ratios.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

import jaxonnx

ROUNDS = 7
TREES, DEPTH, ROWS, FEATURES = 500, 8, 10_000, 30


def tree_model(trees: int, depth: int, features: int) -> bytes:
    """Full binary trees with random features and thresholds, whose leaves are summed."""
    rng = np.random.default_rng(0)
    inner = 2**depth - 1
    count = 2 * inner + 1
    node = np.tile(np.arange(count), trees)
    leaf = node >= inner
    tree = np.repeat(np.arange(trees), count)
    ensemble = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=tree.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_featureids=np.where(leaf, 0, rng.integers(0, features, len(node))).tolist(),
        nodes_values=rng.normal(size=len(node)).astype(np.float32).tolist(),
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_truenodeids=np.where(leaf, 0, 2 * node + 1).tolist(),
        nodes_falsenodeids=np.where(leaf, 0, 2 * node + 2).tolist(),
        target_ids=[0] * int(leaf.sum()),
        target_treeids=tree[leaf].tolist(),
        target_nodeids=node[leaf].tolist(),
        target_weights=rng.normal(size=int(leaf.sum())).astype(np.float32).tolist(),
    )
    graph = helper.make_graph(
        [ensemble],
        "trees",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", features])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])],
    )
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def seconds(function: Callable[[], Any]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    """Measure in turn, and print medians and their ratio."""
    proto = tree_model(TREES, DEPTH, FEATURES)
    x = np.random.default_rng(1).normal(size=(ROWS, FEATURES)).astype(np.float32)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
    start = time.perf_counter()
    model = jaxonnx.load(proto)
    loaded = time.perf_counter()
    first = np.asarray(model(x))
    compiled = time.perf_counter()
    expected: Any = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-4)
    times: dict[str, list[float]] = {"jaxonnx": [], "onnxruntime": []}
    for _ in range(ROUNDS):
        times["jaxonnx"].append(seconds(lambda: np.asarray(model(x))))
        times["onnxruntime"].append(seconds(lambda: session.run(None, {"x": x})))
    title = f"{TREES} trees of depth {DEPTH} on {ROWS:,} rows, medians of {ROUNDS}"
    table = Table("runtime", "time", title=title)
    for name, values in times.items():
        table.add_row(name, f"{statistics.median(values) * 1e3:.0f} ms")
    Console().print(table)
    pairs = zip(times["jaxonnx"], times["onnxruntime"], strict=True)
    Console().print(f"ratio {statistics.median(a / b for a, b in pairs):.2f}")
    Console().print(f"load {loaded - start:.2f} s, first call {compiled - loaded:.2f} s")


if __name__ == "__main__":
    main()
