"""``jaxonnx demo``: everything once, on the model that comes along, a line for each step."""

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from jaxonnx import models
from jaxonnx.cli import session
from jaxonnx.cli.session import Clock
from jaxonnx.loading import load
from jaxonnx.model import Model

_STEP = 0.01  # by which a pixel moves at a time, of 2 between black and white
_RATE = 0.01  # of the descent


def show(console: Console, clock: Clock) -> bool:
    """Print the steps and whether the numbers agree with onnxruntime's."""
    say = _Lines(console)
    path = models.path()
    with clock.step("read"):
        model = load(path)
    count = sum(p.size for p in model.params.values())
    say(f"Read {path.name}, which tells upright text from upside-down text: {count:,} parameters.")

    x, expected = models.example()
    (name,), (output,) = model.input_names, model.output_names
    probabilities = session.run(clock, model, {name: x}, seed=0)[output]
    say(
        f"Ran it on the word 'jaxonnx', upright and upside down: it is {probabilities[0, 0]:.1%} "
        f"sure of the one and {probabilities[1, 1]:.1%} of the other."
    )
    title = "onnxruntime's stored result"
    if importlib.util.find_spec("onnxruntime"):
        title, found = session.oracle(path, {name: x}, "onnxruntime")
        expected = found[output]
    difference = session.compare(probabilities, expected)
    verdict = "ok" if difference.ok else "DIFFERENT"
    say(f"Compared it with {title}: largest difference {difference.absolute:.1e}, {verdict}.")

    by_parameter, _ = session.gradients(clock, model, {name: x}, seed=0)
    finite = all(np.isfinite(g).all() for g in by_parameter.values())
    say(
        f"Differentiated it by {len(by_parameter)} parameter arrays: "
        f"{'all gradients are finite' if finite else 'some gradients are NOT finite'}."
    )
    with clock.step("fool"):
        steps, turned = _fool(model, x[:1])
    say(
        f"Moved each pixel of the upright word by {steps * _STEP / 2:.1%} along the sign of the "
        f"gradient: now it is {turned:.1%} sure that the word is upside down."
    )
    with clock.step("tune"):
        before, after = _tune(model, x)
    say(f"Fine-tuned it on both for 5 steps: the loss fell from {before:.4f} to {after:.4f}.")
    console.print(f"Time: {clock}", highlight=False)
    return difference.ok and finite


class _Lines:
    """Prints numbered lines."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.count = 0

    def __call__(self, line: str) -> None:
        self.count += 1
        self.console.print(f"{self.count}. {line}", highlight=False, markup=False)


def _fool(model: Model, x: Any, most: int = 50) -> tuple[int, float]:
    """Steps along the sign of the gradient until the answer changes, and the new certainty."""

    def doubt(x: Any, model: Model) -> Any:
        """How much more the model believes in 180 degrees than in 0, as a log ratio."""
        log = jnp.log(model(x)[0])
        return log[1] - log[0]

    climb = jax.jit(jax.value_and_grad(doubt))
    steps, (value, slope) = 0, climb(x, model)
    while value <= 0 and steps < most:
        x = x + _STEP * jnp.sign(slope)
        steps, (value, slope) = steps + 1, climb(x, model)
    return steps, float(jax.nn.sigmoid(value))


def _tune(model: Model, x: Any, steps: int = 5) -> tuple[float, float]:
    """The loss before and after some steps of gradient descent on upright and turned text."""

    @jax.jit
    def descend(model: Model, x: Any) -> Any:
        loss, slope = jax.value_and_grad(_loss)(model, x)
        return loss, jax.tree.map(lambda p, g: p - _RATE * g, model, slope)

    losses = []
    for _ in range(steps + 1):
        loss, model = descend(model, x)
        losses.append(float(loss))
    return losses[0], losses[-1]


def _loss(model: Model, x: Any) -> Any:
    """How unlikely the right answers are: 0 degrees for the first picture, 180 for the second."""
    probabilities = model(x)
    return -jnp.mean(jnp.log(jnp.diagonal(probabilities)))
