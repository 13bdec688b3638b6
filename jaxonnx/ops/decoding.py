"""Files of images, decoded on the host by Pillow, which the extra ``image`` installs."""

import io
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from jaxonnx.define.known import concrete
from jaxonnx.define.registry import register
from jaxonnx.errors import InvalidModelError, UnsupportedOpError

__all__ = ["image_decoder"]

_FILES = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
"""Pillow's names of the formats that ONNX lists; Pillow has others that start programs."""

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
"""What Pillow calls the pixels of each ``pixel_format``."""


@register("ImageDecoder", 20, host=True)
def image_decoder(encoded_stream: ArrayLike, /, *, pixel_format: str = "RGB") -> np.ndarray:
    """The pixels uint8[H, W, C] of the file whose bytes uint8[N] are given; there is no derivative.

    ``pixel_format`` is ``RGB``, ``BGR`` or ``Grayscale``, which has one channel, of the luma of
    ITU-R 601-2. The files are BMP, JPEG, JPEG 2000, TIFF, PNG, WebP, PBM, PGM and PPM; of any
    other, or a broken one, the result is empty, uint8[0, 0, 0]. Gray, palettes, CMYK and the like
    are converted. Of 16 bits the upper 8 are kept. Transparency is dropped, pixels lie as in the
    file, whatever orientation EXIF states, and of several frames the first is taken.

    Raises:
        InvalidModelError: if the bytes are not in one dimension, or ``pixel_format`` is another.
        UnsupportedOpError: if Pillow is not installed.
    """
    if pixel_format not in _MODES:
        known = ", ".join(_MODES)
        raise InvalidModelError(f"pixel_format is {pixel_format!r}, expected one of {known}")
    data = concrete(encoded_stream)
    if data.ndim != 1:
        raise InvalidModelError(f"the bytes have shape {list(data.shape)}, expected [N]")
    pixels = _decoded(data.tobytes(), _MODES[pixel_format])
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels


def _decoded(data: bytes, mode: str) -> np.ndarray:
    """The pixels of a file, in three dimensions; of size 0 where it cannot be decoded."""
    try:
        from PIL import Image  # noqa: PLC0415 - an extra, which other models do not need
    except ImportError as error:
        text = 'ImageDecoder needs Pillow: pip install "jaxonnx[image]"'
        raise UnsupportedOpError(text) from error
    try:
        with Image.open(io.BytesIO(data), formats=_FILES) as image:
            pixels = np.asarray(_in_8_bits(image, Image).convert(mode), np.uint8)
    except Exception:  # ONNX: "if it can't decode for any reason"; Pillow raises a dozen kinds
        return np.zeros((0, 0, 0), np.uint8)
    return pixels.reshape(*pixels.shape[:2], -1)


def _in_8_bits(image: Any, module: Any) -> Any:
    """An image without integers of more than 8 bits, which Pillow would clip."""
    if image.mode != "I" and not image.mode.startswith("I;16"):
        return image
    return module.fromarray((np.clip(np.asarray(image), 0, 2**16 - 1) >> 8).astype(np.uint8))
