"""Attention and rotary embeddings."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxonnx.define.dtypes import dtype_of
from jaxonnx.define.known import same_dim
from jaxonnx.define.older import older
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError
from jaxonnx.ops._indices import as_array, check_range, int32, outside, undefined, with_entries
from jaxonnx.ops._precision import wide
from jaxonnx.ops._softmax import softmax

__all__ = ["attention", "flex_attention", "linear_attention", "rotary_embedding"]

_PACKED = 3  # the rank of (batch, sequence, heads * size); split it is 4


@register("Attention", 24, 25, settings=["attn_mask"], product=True)
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    attn_mask: ArrayLike | None = None,
    past_key: ArrayLike | None = None,
    past_value: ArrayLike | None = None,
    nonpad_kv_seqlen: ArrayLike | None = None,
    /,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    outputs: int = 1,
) -> Array | tuple[Array, ...]:
    """Scaled dot-product attention, ``softmax(scale * Q @ K.T + mask) @ V``, per head.

    Q is (batch, q heads, queries, size), K and V are (batch, kv heads, keys, size); each kv head
    serves as many q heads in a row. Or all are packed as (batch, sequence, heads * size), and so
    is then the result. Past keys and values come before K and V. A mask of bool selects keys, any
    other is added; where it has fewer keys, the rest are not seen. A query without any key gives
    0. Outputs: Y, present key, present value, and the scores at the stage
    ``qk_matmul_output_mode``: 0 product, 1 capped, 2 masked, 3 softmax.

    References:
        Vaswani et al., https://arxiv.org/abs/1706.03762; Ainslie et al.,
        https://arxiv.org/abs/2305.13245.

    Raises:
        InvalidModelError: if heads are not given for packed inputs or do not divide, if one of
            past key and past value is absent, or both come with ``nonpad_kv_seqlen``, or a known
            one of these lengths is not between 0 and the number of keys; results of a batch entry
            with such a length that is traced are NaN.
    """
    q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
    packed = q.ndim == _PACKED
    if packed:
        q, k, v = _split(q, q_num_heads), _split(k, kv_num_heads), _split(v, kv_num_heads)
    _check_operands(q, k, v, past_key, past_value, nonpad_kv_seqlen)
    k, v, past = _continued(k, v, past_key, past_value)
    windows = left_window_size, 0 if is_causal else right_window_size
    visible = _visible(q, k, past, nonpad_kv_seqlen, *windows)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    precise = q.dtype if softmax_precision is None else dtype_of(softmax_precision)
    stages = _stages(_scores(q, k, scale), attn_mask, visible, softcap, precise)
    y, stage = _weighted(stages[-1], v), stages[qk_matmul_output_mode]
    if nonpad_kv_seqlen is not None:
        wrong = outside(nonpad_kv_seqlen, k.shape[2]).reshape(-1, 1, 1, 1)
        y, stage = undefined(y, wrong), undefined(stage, wrong)
    y = _packed(y) if packed else y
    return (y, k, v, stage)[:outputs] if outputs > 1 else y


def _for_all_keys(
    q: Any, k: Any, v: Any, attn_mask: Any = None, past_key: Any = None, past_value: Any = None, /
) -> tuple[Any, ...]:
    """The inputs with a mask for one key repeated for all of them."""
    if attn_mask is not None and jnp.ndim(attn_mask) and same_dim(jnp.shape(attn_mask)[-1], 1):
        past = 0 if past_key is None else jnp.shape(past_key)[2]
        keys = past + jnp.shape(k)[-2]
        attn_mask = jnp.broadcast_to(attn_mask, (*jnp.shape(attn_mask)[:-1], keys))
    return q, k, v, attn_mask, past_key, past_value


attention_23 = older(
    attention, 23, inputs=_for_all_keys, note="A mask for one key holds for all of them."
)


def _check_operands(
    q: Array, k: Array, v: Array, past_key: Any, past_value: Any, lengths: Any
) -> None:
    """Refuse pasts and lengths that do not go together, and shapes per head that do not fit."""
    if (past_key is None) != (past_value is None):
        raise InvalidModelError("past_key and past_value must be given together")
    if past_key is not None and lengths is not None:
        raise InvalidModelError("past_key and nonpad_kv_seqlen cannot be given together")
    if not same_dim(k.shape[2], v.shape[2]) or not same_dim(q.shape[-1], k.shape[-1]):
        raise InvalidModelError(
            f"Q, K and V have shapes {q.shape}, {k.shape} and {v.shape} per head, expected one "
            "size of Q and K, and one length of K and V"
        )
    check_range(lengths, k.shape[2], "nonpad_kv_seqlen")


def _continued(
    k: Array, v: Array, past_key: ArrayLike | None, past_value: ArrayLike | None
) -> tuple[Array, Array, Any]:
    """Keys and values behind those of the past, and how many there were."""
    if past_key is None or past_value is None:
        return k, v, 0
    keys, values = jnp.concatenate([past_key, k], axis=2), jnp.concatenate([past_value, v], axis=2)
    return keys, values, jnp.shape(past_key)[2]


def _stages(
    product: Array, mask: ArrayLike | None, visible: Array | None, softcap: float, precise: Any
) -> tuple[Array, Array, Array, Array]:
    """The scores: their product, capped, masked, and as weights by a softmax in ``precise``."""
    capped = softcap * jnp.tanh(product / softcap) if softcap > 0 else product
    bias = None
    if mask is not None:
        mask = _full_mask(jnp.asarray(mask), product.shape[3], product.dtype)
        if mask.dtype == bool:
            visible = mask if visible is None else visible & mask
        else:
            bias = mask
    masked = capped if bias is None else capped + bias
    masked = masked if visible is None else jnp.where(visible, masked, -jnp.inf)
    weights = _softmax(masked.astype(precise), _unseen(bias, visible)).astype(product.dtype)
    return product, capped, masked, weights


def _split(x: Array, heads: int | None) -> Array:
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    return _unpacked(x, heads).swapaxes(1, 2)


def _unpacked(x: Array, heads: int | None) -> Array:
    """(batch, sequence, heads * size) as (batch, sequence, heads, size)."""
    batch, length, width = x.shape
    if not heads or not same_dim(width // heads * heads, width):
        raise InvalidModelError(f"shape {x.shape} does not split into {heads} heads")
    return x.reshape(batch, length, heads, width // heads)


def _packed(x: Array) -> Array:
    """(batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    x = x.swapaxes(1, 2)
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])


def _scores(q: Array, k: Array, scale: float) -> Array:
    """``scale * Q @ K.T``, (batch, q heads, queries, keys); the scale is shared, as ONNX asks."""
    batch, heads, queries, _ = q.shape
    root = math.sqrt(abs(scale))
    q = _grouped(q * math.copysign(root, scale), k.shape[1])
    return (q @ (k * root).swapaxes(2, 3)).reshape(batch, heads, queries, k.shape[2])


def _grouped(x: Array, kv_heads: int) -> Array:
    """The rows of all q heads that share a kv head, together: no key or value is repeated."""
    batch, heads, rows, size = x.shape
    if heads % kv_heads:
        raise InvalidModelError(f"{heads} q heads are no multiple of {kv_heads} kv heads")
    return x.reshape(batch, kv_heads, heads // kv_heads * rows, size)


def _weighted(weights: Array, v: Array) -> Array:
    """``weights @ V``, (batch, q heads, queries, v size), in the dtype of ``weights``."""
    both = np.promote_types(weights.dtype, v.dtype)
    y = _grouped(weights, v.shape[1]).astype(both) @ v.astype(both)
    return y.reshape(*weights.shape[:3], v.shape[-1]).astype(weights.dtype)


def _visible(q: Array, k: Array, past: Any, lengths: Any, left: int, right: int) -> Array | None:
    """Which keys a query may see by position; None: all of them.

    Queries follow ``past`` keys, or end where the valid ones of ``lengths`` end.
    """
    queries = q.shape[2]
    key = jnp.arange(k.shape[2], dtype=np.int32)
    position = jnp.arange(past, past + queries, dtype=np.int32)[:, None]
    conditions = []
    if lengths is not None:
        lengths = jnp.asarray(lengths).astype(np.int32).reshape(-1, 1, 1, 1)
        position = lengths + jnp.arange(-queries, 0, dtype=np.int32)[:, None]
        conditions.append(key < lengths)
    if left >= 0:
        conditions.append(key >= position - left)
    if right >= 0:
        conditions.append(key <= position + right)
    return functools.reduce(jnp.logical_and, conditions) if conditions else None


def _full_mask(mask: Array, keys: Any, dtype: np.dtype) -> Array:
    """``mask`` as bool or ``dtype``, with ``keys`` in its last dimension; added ones are hidden."""
    if mask.dtype != bool:
        mask = mask.astype(dtype)
    if mask.ndim == 0:
        return jnp.broadcast_to(mask, (keys,))
    if same_dim(mask.shape[-1], keys):
        return mask
    widths = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
    return jnp.pad(mask, widths, constant_values=False if mask.dtype == bool else -np.inf)


def _unseen(bias: Array | None, visible: Array | None) -> Array | None:
    """Which queries see no key, by the masks alone; None: all see every key."""
    hidden = [] if bias is None else [bias == -jnp.inf]
    hidden += [] if visible is None else [~visible]
    if not hidden:
        return None
    return functools.reduce(jnp.logical_or, hidden).all(axis=-1, keepdims=True)


def _softmax(scores: Array, unseen: Array | None) -> Array:
    """Softmax over the keys, 0 in rows without any; those are replaced before, so none is NaN."""
    if unseen is None:
        return softmax(scores, axes=(-1,))
    return jnp.where(unseen, 0, softmax(jnp.where(unseen, 0, scores), axes=(-1,)))


@register("FlexAttention", 1, domain="ai.onnx.preview", product=True)
def flex_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    /,
    *,
    prob_mod: Callable[[Any], Any] | None = None,
    score_mod: Callable[[Any], Any] | None = None,
    scale: float | None = None,
    softmax_precision: int | None = None,
) -> Array:
    """:func:`attention` with functions of the scores and of the probabilities of all heads.

    They compute in ``softmax_precision``: float32 unless given, double for double inputs. Each
    takes one array and returns a sequence of one.

    Raises:
        InvalidModelError: if the kv heads do not divide the q heads.
    """
    q, k, v = jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)
    precise = wide(q.dtype)
    precise = precise if softmax_precision is None else dtype_of(softmax_precision)
    scores = _scores(q, k, 1 / math.sqrt(q.shape[-1]) if scale is None else scale).astype(precise)
    if score_mod is not None:
        (scores,) = score_mod(scores)
    weights = softmax(scores, axes=(-1,))
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return _weighted(weights, v).astype(q.dtype)


@register("RotaryEmbedding", 23)
def rotary_embedding(
    x: ArrayLike,
    cos_cache: ArrayLike,
    sin_cache: ArrayLike,
    position_ids: ArrayLike | None = None,
    /,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Array:
    """Rotate pairs of features by angles that grow with the position in the sequence.

    X is (batch, heads, sequence, size) or packed (batch, sequence, heads * size). A pair is a
    feature of the first half and its like of the second, or two neighbours if ``interleaved``,
    among the first ``rotary_embedding_dim`` features (0: all). The caches hold a row per position
    of the sequence, or per value of ``position_ids``.

    References:
        Su et al., https://arxiv.org/abs/2104.09864.

    Raises:
        InvalidModelError: if heads are not given for packed X, a cache has another width, or a
            known position no row; where a traced one has none the features are NaN.
    """
    x = jnp.asarray(x)
    packed = x.ndim == _PACKED
    features = _unpacked(x, num_heads) if packed else x
    size = rotary_embedding_dim or features.shape[-1]
    cos, sin = (_angles(c, position_ids, size // 2) for c in (cos_cache, sin_cache))
    cos, sin = (jnp.expand_dims(c, 2 if packed else 1) for c in (cos, sin))
    turned, rest = features[..., :size], features[..., size:]
    turned = _turned(turned, cos, sin, interleaved)
    return jnp.concatenate([turned, rest], axis=-1).reshape(x.shape)


def _turned(x: Array, cos: Array, sin: Array, interleaved: int) -> Array:
    """``x`` with its pairs of features rotated."""
    half = x.shape[-1] // 2
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    pair = [cos * a - sin * b, sin * a + cos * b]
    if interleaved:
        return jnp.stack(pair, axis=-1).reshape(x.shape)
    return jnp.concatenate(pair, axis=-1)


def _angles(cache: ArrayLike, positions: ArrayLike | None, width: Any) -> Array:
    """(batch, sequence, width): the cache itself, or its rows at ``positions``."""
    cache = jnp.asarray(cache)
    if not same_dim(cache.shape[-1], width):
        raise InvalidModelError(f"the cache has shape {cache.shape}, expected {width} columns")
    if positions is None:
        return cache
    last = cache.shape[0] - 1
    check_range(positions, last, "position_ids")
    if same_dim(jnp.size(positions), 0):  # of an empty cache too
        return jnp.zeros((*jnp.shape(positions), width), cache.dtype)
    rows = int32(as_array(positions))
    found = jnp.take(with_entries(cache, (0,)), rows, axis=0, mode="clip")
    return undefined(found, outside(rows, last)[..., None])


@register("LinearAttention", 27)
def linear_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    past_state: ArrayLike | None = None,
    decay: ArrayLike | None = None,
    beta: ArrayLike | None = None,
    /,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """Attention with a recurrent state per head in place of the softmax; half types in float32.

    Each step decays the state by ``exp(decay)`` (gated), takes from the value what the state
    gives for the key and scales it by ``beta`` (delta), adds ``outer(key, value)``, and reads
    ``scale * query @ state``. Inputs are (batch, sequence, heads * size), the state (batch, kv
    heads, key size, value size). Outputs: the reads, and the last state.

    Raises:
        InvalidModelError: if the rule is unknown, or decay or beta are not what it takes.
    """
    del chunk_size  # a hint
    _check_rule(update_rule, decay, beta)
    dtype = jnp.asarray(query).dtype
    work = wide(dtype)

    def by_time(x: Any, heads: int) -> Array:  # (sequence, batch, heads, size)
        return _unpacked(jnp.asarray(x), heads).astype(work).swapaxes(0, 1)

    q, k, v = by_time(query, q_num_heads), by_time(key, kv_num_heads), by_time(value, kv_num_heads)
    g = None if decay is None else by_time(decay, kv_num_heads)
    b = None if beta is None else by_time(beta, jnp.shape(beta)[-1])
    start, kept = jnp.zeros_like(k, shape=(*k.shape[1:], v.shape[-1])), dtype
    if past_state is not None:
        kept = jnp.asarray(past_state).dtype
        start = start + jnp.asarray(past_state).astype(work)
    state, read = lax.scan(_linear_step, start, (q, k, v, g, b))
    read = read.reshape(*read.shape[:2], q_num_heads * v.shape[-1]).swapaxes(0, 1)
    read = (scale or 1 / math.sqrt(q.shape[-1])) * read
    return read.astype(dtype), state.astype(kept)


def _check_rule(rule: str, decay: Any, beta: Any) -> None:
    """Refuse an unknown rule, and one that takes other inputs than those given."""
    if rule not in {"linear", "gated", "delta", "gated_delta"}:
        raise InvalidModelError(f"update_rule is {rule!r}")
    if (rule.startswith("gated"), rule.endswith("delta")) != (decay is not None, beta is not None):
        raise InvalidModelError(f"decay and beta are not the ones that {rule!r} takes")


def _linear_step(state: Array, now: Any) -> tuple[Array, Array]:
    """The next state, and what the query reads from it: (batch, kv heads, group, v size)."""
    q, k, v, g, b = now
    if g is not None:
        state = state * jnp.exp(g)[..., None]
    if b is not None:
        v = b * (v - jnp.einsum("bhkv,bhk->bhv", state, k))
    state = state + k[..., :, None] * v[..., None, :]
    return state, _grouped(q[..., None, :], k.shape[1]) @ state
