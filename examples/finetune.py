"""Fine-tune the bundled model with optax, teach it to read through noise, and save it as ONNX."""

import pathlib
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxonnx
from jaxonnx import models

BATCH, STEPS, NOISE = 16, 30, 1.0


def batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Noisy pictures of a word, upright (0) and upside down (1), and which is which."""
    pictures, _ = models.example()
    labels = rng.integers(0, 2, BATCH)
    noise = rng.normal(0, NOISE, (BATCH, *pictures.shape[1:]))
    return (pictures[labels] + noise).astype(np.float32), labels.astype(np.int32)


def loss(model, x, labels):
    """The cross entropy of the model's probabilities."""
    probabilities = model(x)[jnp.arange(BATCH), labels]
    return -jnp.mean(jnp.log(probabilities + 1e-6))


def main() -> None:
    """Print the loss on the way, on noise that was not trained on, and of the saved model."""
    model: Any = jaxonnx.load(models.path())  # any PyTree: optax's types know arrays only
    optimizer = optax.adam(1e-3)
    state = optimizer.init(model)  # the leaves of the model are its parameters
    rng = np.random.default_rng(0)
    held_out = batch(np.random.default_rng(1))

    @jax.jit
    def step(model, state, x, labels):
        value, gradient = jax.value_and_grad(loss)(model, x, labels)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(model, updates), state, value

    before = float(loss(model, *held_out))
    for number in range(STEPS):
        model, state, value = step(model, state, *batch(rng))
        if number % 10 == 0 or number == STEPS - 1:
            print(f"step {number:2}: loss {value:.4f}")
    after = float(loss(model, *held_out))
    print(f"pictures not trained on: loss {before:.4f} before, {after:.4f} after")
    assert after < before
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "tuned.onnx"
        model.save(file)  # the same graph with the new weights, for any other runtime
        saved = float(loss(jaxonnx.load(file), *held_out))
        print(f"saved and loaded again: loss {saved:.4f}, {file.stat().st_size:,} bytes")
        assert saved == after


if __name__ == "__main__":
    main()
