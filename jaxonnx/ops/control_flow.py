"""If, Loop and Scan: a known condition picks a branch, a traced one becomes XLA control flow."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from jaxonnx.define.kinks import forward_only
from jaxonnx.define.known import concrete, is_known, lift, same_dim, xp
from jaxonnx.define.padded import Padded
from jaxonnx.define.registry import register
from jaxonnx.errors import (
    DataDependentShapeError,
    InvalidModelError,
    JaxonnxError,
    StaticValueError,
)
from jaxonnx.ops._indices import check_range, outside, undefined

__all__ = ["if_", "loop", "scan"]

_UNROLLED_TRIPS = 256
_MASKED_TRIPS = 2**16
_NO_BOUND = 2**62
"""Exporters write INT64_MAX as the trip count of a loop without one."""

Step = Callable[[Any, Any, Sequence[Any]], tuple[Any, list[Any], list[Any]]]
"""One run of a loop's body: number, condition and carried values to the next ones and the scans."""


@register("If", 1, 11, 13, 16, 19, 21, 23, 24, 25)
def if_(cond: Any, /, *, then_branch: Any, else_branch: Any) -> tuple[Any, ...]:
    """The outputs of ``then_branch`` if ``cond`` is true, else of ``else_branch``.

    Only the taken branch is traced where ``cond`` is known. Derivatives are those of the branch
    that is taken.

    Raises:
        DataDependentShapeError: if ``cond`` is traced and the branches differ in shape or dtype.
    """
    if is_known(cond) or then_branch.concrete:
        return tuple((then_branch if _truth(cond) else else_branch)())
    named = (("then", then_branch), ("else", else_branch))
    (then, other), shapes = zip(*(_trace_branch(n, b) for n, b in named), strict=True)
    if not _same_structure(*shapes):
        raise DataDependentShapeError(
            "the branches of If give different shapes or types, and its condition is only known "
            f"when the program runs: then {_describe(shapes[0])}, else {_describe(shapes[1])}; if "
            "a graph input decides it, fix that one with load(..., constants={name: value})"
        )
    return tuple(lax.cond(jnp.reshape(cond, ()), then, other))


def _trace_branch(name: str, branch: Any) -> tuple[Any, Any]:
    """A branch traced, with what it gives. One that is never taken may not fit its inputs."""
    try:
        return _trace_once(lambda: _traced(branch()))
    except DataDependentShapeError:
        raise
    except Exception as error:
        raise DataDependentShapeError(
            f"the {name}_branch of If does not fit its inputs, and the condition is only known "
            f"when the program runs: {error}"
        ) from error


def _trace_once(function: Callable[..., Any], *args: Any) -> tuple[Callable[..., Any], Any]:
    """``function`` for arguments shaped like these, and the shapes that it gives.

    It is traced here, and what is returned repeats the trace: control flow may trace it again at
    no cost that grows with the depth of nesting.
    """
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    run, structure = jaxpr_as_fun(jaxpr), jax.tree.structure(shapes)
    return lambda *args: jax.tree.unflatten(structure, run(*jax.tree.leaves(args))), shapes


def _traced(value: Any) -> Any:
    """A value, sequence or optional with everything known in it lifted."""
    return jax.tree.map(lambda v: lift(v) if is_known(v) else v, value)


def _truth(cond: Any) -> bool:
    return bool(concrete(cond).reshape(()))


def _same_structure(a: Any, b: Any) -> bool:
    leaves = [jax.tree.leaves(v) for v in (a, b)]
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        x.dtype == y.dtype and len(x.shape) == len(y.shape) and all(map(same_dim, x.shape, y.shape))
        for x, y in zip(*leaves, strict=True)
    )


def _describe(values: Any) -> str:
    return ", ".join(f"{v.dtype}{list(v.shape)}" for v in jax.tree.leaves(values)) or "nothing"


def _bounded_loop(
    m: Any = None, cond: Any = None, /, *v_initial: Any, body: Any, size: int
) -> tuple[Any, ...]:
    """A loop of at most ``size`` iterations, to which its scan outputs are padded.

    A last output that no node has holds the number of iterations where there is no scan output.
    """
    step, limit = _step_of(body, cond, len(v_initial)), _limit(m)
    traced = _trace_step(v_initial, step)
    if traced is None or not traced.stable:
        raise DataDependentShapeError("the carried values of a Loop under a bound change shape")
    limit = None if limit is None else jnp.reshape(_traced(limit), ())
    again, last, count, scans = _masked_scan(size, limit, _go(cond), _traced([*v_initial]), traced)
    more = again if limit is None else again & (limit > size)
    count = count + more.astype(count.dtype)
    return (*last, *(Padded(s, count, 0) for s in scans or [jnp.zeros((size,), bool)]))


@register("Loop", 1, 11, 13, 16, 19, 21, 23, 24, 25, bounded=_bounded_loop)
def loop(m: Any = None, cond: Any = None, /, *v_initial: Any, body: Any) -> tuple[Any, ...]:
    """Runs ``body`` up to ``m`` times while its condition holds.

    ``body`` takes the iteration number, the condition and the carried values, and gives the next
    condition, which is ignored where ``cond`` is absent, the next carried values and the scan
    outputs, which are stacked on a new first axis. A scan where the trip count is known and the
    condition constant, masked where only the count is known; unrolled where a carried value changes
    shape or the body needs the iteration number; else a ``while_loop``, which has no reverse
    derivative.

    Raises:
        DataDependentShapeError: if the length of a scan output depends on values.
    """
    step, limit, go = _step_of(body, cond, len(v_initial)), _limit(m), _go(cond)
    if body.concrete:
        return _run_loop(limit, go, v_initial, step, body)
    count = _number(limit) if is_known(limit) else None
    if count == 0 or (is_known(go) and not _truth(go)):
        return (*v_initial, *_empty_scans(body, 1 + len(v_initial), _first(body, v_initial)))
    traced = _trace_step(v_initial, step)
    if traced is None or not traced.stable:
        if limit is not None and count is None:
            raise DataDependentShapeError(
                "the carried values of a Loop change shape while the number of iterations depends "
                "on values"
            )
        return _unroll(count, go, v_initial, step)
    carried = _traced([*v_initial])
    if count is not None and traced.endless and is_known(go):
        return _scan_loop(count, carried, traced)
    if len(body.graph.outputs) > 1 + len(v_initial):
        raise DataDependentShapeError(
            "the number of iterations of a Loop with scan outputs depends on values"
        )
    if count is not None and count <= _MASKED_TRIPS:
        return tuple(_masked_scan(count, None, go, carried, traced)[1])
    return _while_loop(limit, go, carried, traced)


def _limit(m: Any) -> Any:
    """The trip count; None where there is none."""
    return None if m is None or (is_known(m) and _number(m) > _NO_BOUND) else m


def _go(cond: Any) -> Any:
    return np.asarray(True) if cond is None else cond


def _number(value: Any) -> int:
    return max(0, int(concrete(value).reshape(())))


def _step_of(body: Any, cond: Any, carried: int) -> Step:
    def step(number: Any, go: Any, before: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
        again, *rest = body.at(number)(*_as_declared(body, (number, go), 0), *before)
        again = np.asarray(True) if cond is None else again
        return again, rest[:carried], rest[carried:]

    return step


def _first(body: Any, v_initial: Sequence[Any]) -> list[Any]:
    """What the body takes in the first iteration."""
    start = (np.asarray(0, np.int64), np.asarray(True))
    return [*_as_declared(body, start, 0), *v_initial]


class _Traced(NamedTuple):
    """A loop's body as it was traced once.

    Attributes:
        run: iteration number and carried values to the next condition and carried values and the
            scan outputs, all traced.
        scans: shapes of the scan outputs.
        endless: whether the condition is known to stay true.
        stable: whether the carried values keep their shapes and types.
    """

    run: Callable[[Any, Any], tuple[Any, list[Any], list[Any]]]
    scans: list[Any]
    endless: bool
    stable: bool


def _trace_step(v_initial: Sequence[Any], step: Step) -> _Traced | None:
    """A loop's body, traced; None where it may need to know the number or the carried values."""
    found: list[bool] = []

    def trace(number: Any, carried: Any) -> Any:
        again, after, scans = step(number, np.asarray(True), carried)
        found.append(is_known(again) and _truth(again))
        return _scalar(again), _traced(after), _traced(scans)

    before = _traced([*v_initial])
    try:
        run, (_, after, scans) = _trace_once(trace, jnp.asarray(0, np.int64), before)
    except StaticValueError:
        return None
    return _Traced(run, scans, found[-1], _same_structure(before, after))


def _as_declared(body: Any, values: Sequence[Any], first: int) -> list[Any]:
    """Values in the ranks that a body declares its inputs from ``first`` on with."""
    ranks = body.graph.ranks[first:]
    more = [max(0, (r or 0) - np.ndim(v)) for v, r in zip(values, ranks, strict=False)]
    more += [0] * (len(values) - len(more))
    return [v.reshape((1,) * n + v.shape) if n else v for v, n in zip(values, more, strict=True)]


def _empty_scans(body: Any, skipped: int, inputs: Sequence[Any]) -> list[Any]:
    """Scan outputs of no iterations: length 0 of what the body would give after the first outputs.

    Where that depends on values it is what the body declares, with 0 for sizes that it leaves open.
    """
    try:
        shapes = jax.eval_shape(lambda: _traced(body.traced(*inputs)[skipped:]))
        return [jnp.zeros((0, *s.shape), s.dtype) for s in shapes]
    except StaticValueError:
        if body.concrete and (found := _run_for_shapes(body, inputs)) is not None:
            return [np.zeros((0, *np.shape(v)), v.dtype) for v in found[skipped:]]
        specs = body.graph.specs[skipped:]
        if any(s.dtype is None or s.shape is None for s in specs):
            raise
    dims = [[d if isinstance(d, int) else 0 for d in s.shape] for s in specs]
    return [np.zeros((0, *d), s.dtype) for d, s in zip(dims, specs, strict=True)]


def _run_for_shapes(body: Any, inputs: Sequence[Any]) -> list[Any] | None:
    """What a body would give outside of a trace; None where it does not fit these inputs."""
    try:
        return body(*inputs)
    except JaxonnxError:
        return None


def _unroll(count: int | None, go: Any, v_initial: Sequence[Any], step: Step) -> tuple[Any, ...]:
    """The body once per iteration, with the iteration number known."""
    carried, scans, again, number = [*v_initial], [], go, 0
    while (count is None or number < count) and _known_truth(again):
        if number == _UNROLLED_TRIPS:
            raise DataDependentShapeError(
                f"a Loop that has to be unrolled has more than {_UNROLLED_TRIPS} iterations"
            )
        again, carried, scan = step(np.asarray(number, np.int64), np.asarray(True), carried)
        scans.append(scan)
        number += 1
    return (*carried, *map(_stack, zip(*scans, strict=True)))


def _known_truth(again: Any) -> bool:
    if not is_known(again):
        raise DataDependentShapeError(
            "a Loop has to be unrolled, but its condition depends on values"
        )
    return _truth(again)


def _stack(values: Sequence[Any]) -> Any:
    """The scan outputs of all iterations as one array."""
    module = xp(*values)
    return module.stack(values if module is np else _traced(values))


def _scan_loop(count: int, carried: list[Any], traced: _Traced) -> tuple[Any, ...]:
    def advance(before: Any, number: Any) -> Any:
        return traced.run(number, before)[1:]

    last, scans = lax.scan(advance, carried, jnp.arange(count, dtype=np.int64))
    return (*last, *scans)


def _masked_scan(
    size: int, limit: Any, go: Any, carried: list[Any], traced: _Traced
) -> tuple[Any, list[Any], Any, list[Any]]:
    """A scan whose body runs under ``lax.cond``: after the end it must not compute at all.

    Returns the last condition, the carried values, the number of iterations and the scan outputs,
    padded with -1 where they are signed integers and 0 elsewhere.
    """

    def advance(state: Any, number: Any) -> Any:
        again, after, scan = traced.run(number, state[1])
        return (again, after, state[2] + 1), scan

    def skip(state: Any, number: Any) -> Any:
        del number
        signed = [jnp.issubdtype(s.dtype, jnp.signedinteger) for s in traced.scans]
        pairs = zip(traced.scans, signed, strict=True)
        return state, [jnp.full(s.shape, -1 if n else 0, s.dtype) for s, n in pairs]

    def iterate(state: Any, number: Any) -> Any:
        proceed = state[0] if limit is None else state[0] & (number < limit)
        return lax.cond(proceed, advance, skip, state, number)

    start = (_scalar(go), carried, jnp.asarray(0, np.int64))
    numbers = jnp.arange(size, dtype=np.int64)
    (again, last, count), scans = lax.scan(iterate, start, numbers)
    return again, last, count, scans


def _scalar(value: Any) -> Any:
    return jnp.reshape(_traced(value), ())


def _while_loop(limit: Any, go: Any, carried: list[Any], traced: _Traced) -> tuple[Any, ...]:
    limit = None if limit is None else _scalar(limit)

    def proceed(state: Any) -> Any:
        number, again, _ = state
        return again if limit is None else again & (number < limit)

    def advance(state: Any) -> Any:
        number, _, before = state
        again, after, _ = traced.run(number, before)
        return number + 1, again, after

    start = (jnp.asarray(0, np.int64), _scalar(go), carried)
    last = lax.while_loop(proceed, advance, start)[2]
    message = (
        "a Loop whose number of iterations depends on values has no reverse derivative; declare "
        "the most that there can be with load(..., bounds={name: n})"
    )
    return tuple(jax.tree.map(lambda v: forward_only(v, message), last))


def _run_loop(
    limit: Any, go: Any, v_initial: Sequence[Any], step: Step, body: Any
) -> tuple[Any, ...]:
    """A loop outside of any trace, one run of the body after another."""
    most = np.inf if limit is None else _number(limit)
    number, again, carried, scans = 0, _truth(go), [*v_initial], []
    while again and number < most:
        cond, carried, scan = step(np.asarray(number, np.int64), np.asarray(True), carried)
        again, number = _truth(cond), number + 1
        scans.append(scan)
    if not scans:
        return (*carried, *_empty_scans(body, 1 + len(carried), _first(body, carried)))
    return (*carried, *map(_stack, zip(*scans, strict=True)))


@register("Scan", 9, 11, 16, 19, 21, 23, 24, 25)
def scan(
    *initial_state_and_scan_inputs: Any,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> tuple[Any, ...]:
    """Runs ``body`` over slices of the scan inputs, carrying the state from one to the next.

    ``body`` takes the state and one slice of each scan input, and gives the next state and the
    slices that are stacked to the scan outputs. A direction of 1 goes backward.

    Raises:
        InvalidModelError: if the scan inputs differ in length.
    """
    states = len(initial_state_and_scan_inputs) - num_scan_inputs
    state = [*initial_state_and_scan_inputs[:states]]
    axes = scan_input_axes or (0,) * num_scan_inputs
    values = initial_state_and_scan_inputs[states:]
    values = values if body.concrete else _traced(values)
    slices = [xp(v).moveaxis(v, a, 0) for v, a in zip(values, axes, strict=True)]
    if not all(same_dim(s.shape[0], slices[0].shape[0]) for s in slices):
        raise InvalidModelError(
            f"the scan inputs have different lengths {[s.shape[0] for s in slices]}"
        )
    slices = _directed(slices, scan_input_directions)
    last, stacked = (_run_scan if body.concrete else _scan)(state, slices, body)
    out_axes = scan_output_axes or (0,) * len(stacked)
    stacked = _directed(stacked, scan_output_directions)
    moved = (xp(s).moveaxis(s, 0, a) for s, a in zip(stacked, out_axes, strict=True))
    return (*last, *moved)


def _directed(values: Sequence[Any], directions: Sequence[int] | None) -> list[Any]:
    """The values with the first axis reversed where a direction is 1."""
    directions = directions or (0,) * len(values)
    return [v[::-1] if d else v for v, d in zip(values, directions, strict=True)]


def _scan(state: Sequence[Any], slices: Sequence[Any], body: Any) -> tuple[list[Any], list[Any]]:
    def step(carried: Any, xs: Any) -> Any:
        number, row = xs
        outputs = _traced(body.at(number)(*carried, *_as_declared(body, row, len(carried))))
        return outputs[: len(carried)], outputs[len(carried) :]

    numbers = jnp.arange(slices[0].shape[0], dtype=np.int64)
    return lax.scan(step, _traced([*state]), (numbers, [*slices]))


def _run_scan(
    state: Sequence[Any], slices: Sequence[Any], body: Any
) -> tuple[list[Any], list[Any]]:
    """A scan outside of any trace, one run of the body after another."""
    carried, rows = [*state], []
    for k in range(slices[0].shape[0]):
        row = [s[k : k + 1].reshape(s.shape[1:]) for s in slices]
        outputs = body.at(k)(*carried, *_as_declared(body, row, len(carried)))
        carried = outputs[: len(carried)]
        rows.append(outputs[len(carried) :])
    if rows:
        return carried, [_stack(r) for r in zip(*rows, strict=True)]
    blank = [np.zeros(s.shape[1:], s.dtype) for s in slices]
    first = [*carried, *_as_declared(body, blank, len(carried))]
    return carried, _empty_scans(body, len(carried), first)


@register("Scan", 8)
def scan_8(
    sequence_lens: Any,
    /,
    *initial_state_and_scan_inputs: Any,
    body: Any,
    num_scan_inputs: int,
    directions: Sequence[int] | None = None,
) -> tuple[Any, ...]:
    """A scan along axis 1 of every scan input, apart for each element of a batch on axis 0.

    Beyond an element's ``sequence_lens`` its state stays as it is, and the scan outputs are 0. A
    direction of 1 goes backward from the last slice within that length. What a length that is not
    between 0 and the number of slices gives is as of an index out of range in Gather.

    Raises:
        InvalidModelError: if a known length is not between 0 and the number of slices.
    """
    values = initial_state_and_scan_inputs
    batch, length = np.shape(values[-1])[:2]
    lens = np.full((batch,), length, np.int64) if sequence_lens is None else sequence_lens
    lens = concrete(lens) if body.concrete else lens
    check_range(lens, length, "sequence_lens")
    flags = directions or (0,) * num_scan_inputs
    if body.concrete:
        rows = [
            _run_sequence([v[k] for v in values], lens[k], flags, body.at(k)) for k in range(batch)
        ]
        return tuple(map(_stack, zip(*rows, strict=True)))
    sequence = functools.partial(_sequence, flags=flags, length=length, body=body)
    return jax.vmap(sequence)(jnp.arange(batch), _traced(lens), *_traced(values))


def _sequence(
    element: Any, count: Any, *values: Any, flags: Sequence[int], length: Any, body: Any
) -> tuple[Any, ...]:
    """One element of the batch inside of a trace."""
    states = len(values) - len(flags)

    def step(carried: Any, number: Any) -> Any:
        # Beyond the end the body runs on the last slice again, so that it stays differentiable.
        places = [jnp.clip(count - 1 - number if f else number, 0, count - 1) for f in flags]
        slices = [
            jnp.take(v, p.astype(np.int32), axis=0, mode="clip")
            for v, p in zip(values[states:], places, strict=True)
        ]
        now = body.at(element).at(number)
        outputs = _traced(now(*carried, *_as_declared(body, slices, states)))
        before = [*carried, *map(jnp.zeros_like, outputs[states:])]
        kept = [jnp.where(number < count, o, b) for o, b in zip(outputs, before, strict=True)]
        return kept[:states], kept[states:]

    numbers = jnp.arange(length, dtype=np.int64)
    last, stacked = lax.scan(step, [*values[:states]], numbers)
    return tuple(undefined(v, outside(count, length)) for v in (*last, *stacked))


def _run_sequence(values: Sequence[Any], count: int, flags: Sequence[int], body: Any) -> list[Any]:
    """One element of the batch outside of any trace."""
    states, length = len(values) - len(flags), values[-1].shape[0]
    slices = _directed([v[:count] for v in values[states:]], flags)
    last, stacked = _run_scan(values[:states], slices, body)
    return [*last, *(_padded(s, length) for s in stacked)]


def _padded(value: Any, length: int) -> Any:
    """A scan output with zeros, or empty strings, up to ``length``."""
    rest = np.zeros((length - value.shape[0], *value.shape[1:]), value.dtype)
    return xp(value).concatenate([value, rest])
