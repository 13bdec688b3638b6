"""Differentiate the bundled model by its input: where it looks, and how little fools it."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxonnx
from jaxonnx import models

STEP = 0.01  # of the pixels' range from -1 to 1


def doubt(model, x):
    """How much more the model believes in 180 degrees than in 0, as a log ratio."""
    upright, upside_down = jnp.log(model(x)[0])
    return upside_down - upright


def draw(values: np.ndarray, columns: int = 64) -> str:
    """A picture of a few characters: the darker the larger."""
    height, width = values.shape
    cell = width // columns
    cells = values[: height // cell // 2 * cell * 2, : columns * cell]
    cells = cells.reshape(-1, 2 * cell, columns, cell).mean((1, 3))
    shades = " .:-=+*#%@"
    levels = np.minimum(cells / cells.max() * len(shades), len(shades) - 1).astype(int)
    return "\n".join("".join(shades[level] for level in row).rstrip() for row in levels)


def main() -> None:
    """Print a saliency map, then take steps along the sign of the gradient."""
    model = jaxonnx.load(models.path())
    gradient = jax.jit(jax.grad(doubt, argnums=1))  # the model is an argument: its leaves move too
    x = models.example()[0][:1]  # the upright word

    print("the word:")
    print(draw(1 - x[0].mean(0)))
    print("where a change of a pixel changes the answer most:")
    print(draw(np.abs(gradient(model, x)[0]).sum(0)))

    start, steps = x, 0
    print(f"before: {model(x)[0, 1]:.4f} sure of 180 degrees")
    while model(x)[0, 1] < 0.5 and steps < 50:
        x = jnp.clip(x + STEP * jnp.sign(gradient(model, x)), -1, 1)
        steps += 1
    change = np.abs(x - start).max() / 2
    print(f"after: {model(x)[0, 1]:.4f} sure; steps: {steps}, no pixel moved by over {change:.1%}")


if __name__ == "__main__":
    main()
