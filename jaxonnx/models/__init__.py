"""The trained model that comes with jaxonnx, for trying things out.

``text_direction.onnx`` (0.6 MB, 566 nodes, Apache-2.0) looks at a line of text and says whether it
is upright or upside down. It takes ``float32[N, 3, 48, W]`` with values in -1 to 1 and gives
``float32[N, 2]``, the probabilities of 0 and of 180 degrees.
"""

import pathlib
from importlib import resources

import numpy as np


def path() -> pathlib.Path:
    """Where the model lies, for :func:`jaxonnx.load` and for the command line."""
    return pathlib.Path(str(resources.files(__name__))) / "text_direction.onnx"


def example() -> tuple[np.ndarray, np.ndarray]:
    """An input for the model and what onnxruntime makes of it.

    Returns:
        The word "jaxonnx" upright and upside down, ``float32[2, 3, 48, 192]``; and the
        probabilities of 0 and 180 degrees for each, ``float32[2, 2]``.
    """
    with np.load(path().with_suffix(".npz")) as stored:
        upright = stored["pixels"].astype(np.float32) / 127.5 - 1
        expected = stored["probabilities"]
    both = np.stack([upright, upright[::-1, ::-1]])
    return np.repeat(both[:, None], 3, axis=1), expected
