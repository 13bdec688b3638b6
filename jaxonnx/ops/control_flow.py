"""If, Loop and Scan: a known condition picks a branch, a traced one becomes XLA control flow."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxonnx.errors import DataDependentShapeError, InvalidModelError, StaticValueError
from jaxonnx.known import is_known, lift
from jaxonnx.registry import register

__all__ = ["if_", "loop", "scan"]

_UNROLLED_TRIPS = 256
_NO_BOUND = 2**62
"""Exporters write INT64_MAX as the trip count of a loop without one."""


@register("If", 1, 11, 13, 16, 19, 21, 23, 24, 25)
def if_(cond: Any, /, *, then_branch: Any, else_branch: Any) -> tuple[Any, ...]:
    """The outputs of ``then_branch`` if ``cond`` is true, else of ``else_branch``.

    Only the taken branch is traced where ``cond`` is known. Derivatives are those of the branch
    that is taken.

    Raises:
        DataDependentShapeError: if ``cond`` is traced and the branches differ in shape or dtype.
    """
    if is_known(cond):
        return tuple((then_branch if _truth(cond) else else_branch)())
    then, other = (_branch(b) for b in (then_branch, else_branch))
    shapes = [_shapes(name, b) for name, b in (("then", then), ("else", other))]
    if not _same_structure(*shapes):
        raise DataDependentShapeError(
            "the branches of If give different shapes or types, and its condition is only known "
            f"when the program runs: then {_describe(shapes[0])}, else {_describe(shapes[1])}"
        )
    return tuple(lax.cond(jnp.reshape(cond, ()), then, other))


def _shapes(name: str, branch: Any) -> Any:
    """What a branch would give. One that is never taken may not fit the inputs at all."""
    try:
        return jax.eval_shape(branch)
    except DataDependentShapeError:
        raise
    except Exception as error:
        raise DataDependentShapeError(
            f"the {name}_branch of If does not fit its inputs, and the condition is only known when "
            f"the program runs: {error}"
        ) from error


def _branch(branch: Any) -> Any:
    return lambda: [_traced(v) for v in branch()]


def _traced(value: Any) -> Any:
    """A value, sequence or optional with everything known in it lifted."""
    return jax.tree.map(lambda v: lift(v) if is_known(v) else v, value)


def _truth(cond: Any) -> bool:
    return bool(np.asarray(cond).reshape(()))


def _same_structure(a: Any, b: Any) -> bool:
    leaves = [jax.tree.leaves(v) for v in (a, b)]
    same = jax.tree.structure(a) == jax.tree.structure(b)
    return same and all(
        x.shape == y.shape and x.dtype == y.dtype for x, y in zip(*leaves, strict=True)
    )


def _describe(values: Any) -> str:
    return ", ".join(f"{v.dtype}{list(v.shape)}" for v in jax.tree.leaves(values))


@register("Loop", 1, 11, 13, 16, 19, 21, 23, 24, 25)
def loop(m: Any, cond: Any = None, /, *v_initial: Any, body: Any) -> tuple[Any, ...]:
    """Runs ``body`` up to ``m`` times while its condition holds.

    ``body`` takes the iteration number, the condition and the carried values, and gives the next
    condition, the next carried values and the scan outputs, which are stacked on a new first axis.
    A scan where the trip count is known and the condition constant, masked where only the count is
    known; unrolled where a carried value changes shape; else a ``while_loop``, which has no reverse
    derivative.

    Raises:
        DataDependentShapeError: if the length of a scan output depends on values.
    """
    trips = None if m is None or (is_known(m) and int(np.asarray(m).reshape(())) > _NO_BOUND) else m
    go = np.asarray(True) if cond is None else cond
    if body.concrete:
        return _run_loop(trips, go, v_initial, body)
    if is_known(go) and not _truth(go):
        trips = np.asarray(0)
    count = int(np.asarray(trips).reshape(())) if is_known(trips) else None
    if count is not None and count <= 0:
        return (*v_initial, *_empty_scans(v_initial, body))
    constant, stable = _probe(v_initial, body)
    scans = len(body.graph.outputs) - 1 - len(v_initial)
    if not stable:
        return _unroll(count, v_initial, body)
    carried = [_traced(v) for v in v_initial]
    if count is not None and constant and is_known(go):
        return _scan_loop(count, carried, body)
    if scans:
        raise DataDependentShapeError(
            "the number of iterations of a Loop with scan outputs depends on values"
        )
    if count is not None and count <= 2**16:
        return _masked_loop(count, go, carried, body)
    return _while_loop(trips, go, carried, body)


def _step(number: Any, cond: Any, carried: Sequence[Any], body: Any) -> tuple[Any, Any, Any]:
    """One run of the body: the next condition, carried values and scan outputs."""
    again, *rest = body(number, cond, *carried)
    return again, rest[: len(carried)], rest[len(carried) :]


def _probe(v_initial: Sequence[Any], body: Any) -> tuple[bool, bool]:
    """Whether the condition stays true, and whether carried values keep their shapes."""
    found: list[bool] = []

    def trace(number: Any, carried: Any) -> Any:
        again, after, _ = _step(number, np.asarray(True), carried, body)
        found.append(is_known(again) and _truth(again))
        return [_traced(v) for v in after]

    before = [_traced(v) for v in v_initial]
    try:
        after = jax.eval_shape(trace, jnp.asarray(0, np.int64), before)
    except DataDependentShapeError:
        raise
    except StaticValueError:
        return False, False
    return found[-1], _same_structure(jax.eval_shape(lambda: before), after)


def _empty_scans(v_initial: Sequence[Any], body: Any) -> list[Any]:
    """Scan outputs of no iterations: what the body would give, of length 0."""

    def trace(carried: Any) -> Any:
        return [
            _traced(v)
            for v in _step(np.asarray(0, np.int64), np.asarray(True), carried, body)[2]
        ]

    shapes = jax.eval_shape(trace, [_traced(v) for v in v_initial])
    return [np.zeros((0, *s.shape), s.dtype) for s in shapes]


def _unroll(count: int | None, v_initial: Sequence[Any], body: Any) -> tuple[Any, ...]:
    """The body once per iteration, with the iteration number known."""
    carried, scans, again = [*v_initial], [], np.asarray(True)
    for number in range(_UNROLLED_TRIPS + 1):
        if (count is not None and number >= count) or not _known_truth(again):
            break
        if number == _UNROLLED_TRIPS:
            raise DataDependentShapeError(
                f"a Loop whose carried values change shape has more than {_UNROLLED_TRIPS} iterations"
            )
        again, carried, scan = _step(np.asarray(number, np.int64), np.asarray(True), carried, body)
        scans.append([_traced(v) for v in scan])
    stacked = [jnp.stack(s) for s in zip(*scans, strict=True)]
    return (*carried, *stacked)


def _known_truth(again: Any) -> bool:
    if not is_known(again):
        raise DataDependentShapeError(
            "the carried values of a Loop change shape while its condition depends on values"
        )
    return _truth(again)


def _scan_loop(count: int, carried: list[Any], body: Any) -> tuple[Any, ...]:
    def step(state: Any, number: Any) -> Any:
        _, after, scan = _step(number, np.asarray(True), state, body)
        return [_traced(v) for v in after], [_traced(v) for v in scan]

    last, scans = lax.scan(step, carried, jnp.arange(count, dtype=np.int64))
    return (*last, *scans)


def _masked_loop(count: int, go: Any, carried: list[Any], body: Any) -> tuple[Any, ...]:
    """A scan whose body runs under ``lax.cond``: after the end it must not compute at all."""

    def advance(state: Any, number: Any) -> Any:
        again, after, _ = _step(number, jnp.asarray(True), state[1], body)
        return jnp.reshape(_traced(again), ()), [_traced(v) for v in after]

    def step(state: Any, number: Any) -> Any:
        return lax.cond(state[0], lambda s: advance(s, number), lambda s: s, state), None

    start = (jnp.reshape(_traced(go), ()), carried)
    (_, last), _ = lax.scan(step, start, jnp.arange(count, dtype=np.int64))
    return tuple(last)


def _while_loop(trips: Any, go: Any, carried: list[Any], body: Any) -> tuple[Any, ...]:
    limit = None if trips is None else jnp.reshape(_traced(trips), ())

    def proceed(state: Any) -> Any:
        number, again, _ = state
        return again if limit is None else again & (number < limit)

    def step(state: Any) -> Any:
        number, _, before = state
        again, after, _ = _step(number, jnp.asarray(True), before, body)
        return number + 1, jnp.reshape(_traced(again), ()), [_traced(v) for v in after]

    start = (jnp.asarray(0, np.int64), jnp.reshape(_traced(go), ()), carried)
    return tuple(lax.while_loop(proceed, step, start)[2])


def _run_loop(trips: Any, go: Any, v_initial: Sequence[Any], body: Any) -> tuple[Any, ...]:
    """A loop outside of any trace, one run of the body after another."""
    limit = np.inf if trips is None else int(np.asarray(trips).reshape(()))
    number, again, carried, scans = 0, _truth(go), [*v_initial], []
    while again and number < limit:
        cond, carried, scan = _step(np.asarray(number, np.int64), np.asarray(True), carried, body)
        again, number = _truth(cond), number + 1
        scans.append(scan)
    if not scans:
        return (*carried, *_empty_scans_or_flat(v_initial, body))
    return (*carried, *(_stack(s) for s in zip(*scans, strict=True)))


def _stack(values: Sequence[Any]) -> Any:
    module = jnp if any(isinstance(v, jax.Array) for v in values) else np
    return module.stack(values)


def _empty_scans_or_flat(v_initial: Sequence[Any], body: Any) -> list[Any]:
    """Scan outputs of no iterations; 1-d where the body's shapes depend on values."""
    count = len(body.graph.outputs) - 1 - len(v_initial)
    return [np.zeros((0,), np.float32)] * count if count and not body.concrete else []


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
    state = [_traced(v) for v in initial_state_and_scan_inputs[:states]]
    axes = scan_input_axes or (0,) * num_scan_inputs
    backward = scan_input_directions or (0,) * num_scan_inputs
    values = [_traced(v) for v in initial_state_and_scan_inputs[states:]]
    slices = [jnp.moveaxis(v, a, 0) for v, a in zip(values, axes, strict=True)]
    if len({s.shape[0] for s in slices}) > 1:
        raise InvalidModelError(
            f"the scan inputs have different lengths {[s.shape[0] for s in slices]}"
        )
    slices = [s[::-1] if b else s for s, b in zip(slices, backward, strict=True)]

    def step(carried: Any, xs: Any) -> Any:
        outputs = [_traced(v) for v in body(*carried, *xs)]
        return outputs[:states], outputs[states:]

    last, stacked = lax.scan(step, state, slices)
    out_axes = scan_output_axes or (0,) * len(stacked)
    out_backward = scan_output_directions or (0,) * len(stacked)
    stacked = [s[::-1] if b else s for s, b in zip(stacked, out_backward, strict=True)]
    return (*last, *(jnp.moveaxis(s, 0, a) for s, a in zip(stacked, out_axes, strict=True)))
