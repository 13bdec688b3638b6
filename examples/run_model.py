"""Run the bundled model at several sizes: by position, by name, vectorized and exported."""

import time

import jax
import numpy as np

import jaxonnx
from jaxonnx import models


def main() -> None:
    """Print what the model says of upright and of upside-down text."""
    model = jaxonnx.load(models.path())
    print(model)

    x, expected = models.example()  # the same word upright and upside down
    probabilities = model(x)
    for name, row in zip(("upright", "upside down"), np.asarray(probabilities), strict=True):
        print(f"{name}: 0 degrees {row[0]:.4f}, 180 degrees {row[1]:.4f}")
    print(f"largest difference from onnxruntime: {np.abs(probabilities - expected).max():.1e}")

    by_name = model({"x": x})  # the same call with the ONNX name of the input
    one_at_a_time = jax.vmap(lambda image: model(image[None])[0])(x)
    print("by name and vectorized:", np.allclose(by_name, one_at_a_time, atol=1e-6))

    for batch in (1, 4, 4):  # a new batch size is compiled once
        start = time.perf_counter()
        jax.block_until_ready(model(np.resize(x, (batch, *x.shape[1:]))))
        print(f"batch {batch}: {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
