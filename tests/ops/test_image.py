"""DepthToSpace and SpaceToDepth: both orders, every version, inverse of each other."""

import jax
import numpy as np
import pytest
from helpers import FLOATS, assert_close, check_gradients, run_node
from jax import export

from jaxonnx import ops
from jaxonnx.errors import InvalidModelError


def blocks(mode):
    """``[1, 8, 1, 1]`` with blocks of 2, by the formulas of the text: two channels of 2 x 2."""
    depth = np.arange(8)
    tiles = depth.reshape(2, 2, 2).transpose(2, 0, 1) if mode == "DCR" else depth.reshape(2, 2, 2)
    return depth.reshape(1, 8, 1, 1), tiles[None]


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("dtype", [*FLOATS, np.int8, np.uint64, np.bool_, np.complex64])
def test_orders(mode, dtype):
    depth, space = (v.astype(dtype) for v in blocks(mode))
    for opset in (11, 13, 28):
        if dtype.__name__ == "bfloat16" and opset == 11:
            continue
        (y,) = run_node("DepthToSpace", [depth], opset=opset, blocksize=2, mode=mode)
        assert_close(y, space)
    assert_close(run_node("SpaceToDepth", [space], opset=28, blocksize=2, mode=mode)[0], depth)


def test_old_versions_and_defaults():
    depth, space = (v.astype(np.float32) for v in blocks("DCR"))
    for opset in (1, 11, 13, 28):
        assert_close(run_node("DepthToSpace", [depth], opset=opset, blocksize=2)[0], space)
        assert_close(run_node("SpaceToDepth", [space], opset=opset, blocksize=2)[0], depth)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("shape", [(2, 12, 2, 3), (0, 4, 2, 2), (1, 0, 3, 2)])
def test_inverse(shape, mode):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    n, c, h, w = shape
    space = ops.depth_to_space(x, blocksize=2, mode=mode)
    assert space.shape == (n, c // 4, 2 * h, 2 * w)
    assert_close(ops.space_to_depth(space, blocksize=2, mode=mode), x)


def test_gradients():
    both = lambda x: ops.depth_to_space(x * x, blocksize=2)
    check_gradients(both, np.arange(8.0).reshape(1, 8, 1, 1))
    both = lambda x: ops.space_to_depth(x * x, blocksize=2)
    check_gradients(both, np.arange(8.0).reshape(1, 1, 4, 2))


def test_symbolic_shapes():
    b, n = export.symbolic_shape("b, n")
    spec = jax.ShapeDtypeStruct((b, 4, 2 * n, 4), np.float32)
    there = lambda x: ops.depth_to_space(ops.space_to_depth(x, blocksize=2), blocksize=2)
    x = np.arange(64, dtype=np.float32).reshape(2, 4, 2, 4)
    assert_close(export.export(jax.jit(there))(spec).call(x), x)


@pytest.mark.parametrize(
    ("op_type", "shape", "options", "message"),
    [
        ("DepthToSpace", (1, 6, 2, 2), {}, "the depth, 6, is no multiple of 4"),
        ("SpaceToDepth", (1, 1, 3, 2), {}, "the height, 3, is no multiple of 2"),
        ("SpaceToDepth", (1, 1, 2, 3), {}, "the width, 3, is no multiple of 2"),
        ("DepthToSpace", (1, 4, 1, 1), {"mode": "RCD"}, "mode 'RCD', expected DCR or CRD"),
    ],
)
def test_errors(op_type, shape, options, message):
    with pytest.raises(InvalidModelError, match=message):
        run_node(op_type, [np.zeros(shape, np.float32)], opset=28, blocksize=2, **options)
