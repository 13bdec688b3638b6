"""ImageDecoder: files to pixels."""

import builtins
import io
from typing import Any

import numpy as np
import pytest
from helpers import assert_same, run_node, text_model, u8
from PIL import Image

import jaxonnx
from jaxonnx import ops
from jaxonnx.errors import InvalidModelError, UnsupportedOpError

RED, BLUE = [255, 0, 0], [0, 0, 255]
ROW = u8([[RED, BLUE]])
GRAY = u8([[[76], [29]]])  # 0.299 * 255 and 0.114 * 255


def file(image, kind="PNG", **options):
    """The bytes of a file that holds an image."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return np.frombuffer(stream.getvalue(), np.uint8)


def picture(pixels, mode=None):
    made = Image.fromarray(pixels)
    return made if mode is None else made.convert(mode)


@pytest.mark.parametrize(
    ("form", "expected"), [("RGB", ROW), ("BGR", ROW[:, :, ::-1]), ("Grayscale", GRAY)]
)
def test_pixel_formats(form, expected):
    (y,) = run_node("ImageDecoder", [file(picture(ROW))], opset=20, pixel_format=form)
    assert_same(y, expected)


@pytest.mark.parametrize("kind", ["BMP", "PNG", "PPM", "TIFF"])
@pytest.mark.parametrize("mode", [None, "P", "RGBA"])
def test_lossless_files_with_palette_or_transparency(kind, mode):
    if (kind, mode) == ("PPM", "P"):
        return  # the format has no palettes
    assert_same(ops.image_decoder(file(picture(ROW, mode), kind)), ROW)


def test_transparency_is_dropped():
    clear = picture(u8([[[*RED, 0], [*BLUE, 128]]]))
    assert_same(ops.image_decoder(file(clear)), ROW)
    gray = picture(u8([[[7, 0], [9, 255]]]))
    assert_same(ops.image_decoder(file(gray), pixel_format="Grayscale"), u8([[[7], [9]]]))


def test_one_bit_and_gray():
    bits = Image.fromarray(np.array([[True, False]]))
    assert_same(ops.image_decoder(file(bits)), u8([[[255] * 3, [0] * 3]]))
    gray = picture(u8([[7, 200]]))
    assert_same(ops.image_decoder(file(gray)), u8([[[7] * 3, [200] * 3]]))
    assert_same(ops.image_decoder(file(gray), pixel_format="Grayscale"), u8([[[7], [200]]]))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_the_upper_bits_of_16_are_kept(kind):
    deep = Image.fromarray(np.array([[0x1234, 0xFFFF, 0x00FF]], np.uint16))
    expected = u8([[[0x12], [0xFF], [0]]])
    assert_same(ops.image_decoder(file(deep, kind), pixel_format="Grayscale"), expected)
    assert_same(ops.image_decoder(file(deep, kind)), expected.repeat(3, axis=2))


def test_cmyk_is_converted():
    cyan = Image.fromarray(u8([[[255, 0, 0, 0], [0, 0, 0, 0]]]), mode="CMYK")
    assert_same(ops.image_decoder(file(cyan, "TIFF")), u8([[[0, 255, 255], [255, 255, 255]]]))


def test_the_first_of_several_frames():
    frames = [picture(ROW), picture(ROW[:, ::-1])]
    for kind in ("PNG", "TIFF"):
        several = file(frames[0], kind, save_all=True, append_images=frames[1:])
        assert_same(ops.image_decoder(several), ROW)


def test_orientation_is_not_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    assert_same(ops.image_decoder(file(picture(ROW), exif=exif)), ROW)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "JPEG2000"])
def test_lossy_files(kind):
    flat = np.full((8, 8, 3), 128, np.uint8)
    y = ops.image_decoder(file(picture(flat), kind))
    assert y.shape == flat.shape
    assert np.abs(y.astype(int) - 128).max() <= 2


@pytest.mark.parametrize(
    "data",
    [
        u8([]),
        u8([1, 2, 3]),
        file(picture(ROW))[:40],
        file(picture(np.zeros((64, 64, 3), np.uint8)), "JPEG")[:-300],
        file(picture(ROW), "GIF"),  # none of ONNX's formats
    ],
)
def test_what_cannot_be_decoded_is_empty(data):
    assert_same(ops.image_decoder(data), np.zeros((0, 0, 0), np.uint8))


def test_a_model_decodes_between_compiled_stretches():
    model = jaxonnx.load(
        text_model(
            "(uint8[N] file) => (float y) { p = ImageDecoder(file) f = Cast<to = 1>(p)"
            " y = ReduceMean<keepdims = 0>(f) }",
            opset=20,
        )
    )
    assert float(model(file(picture(ROW)))) == 85
    assert "ImageDecoder" in repr(model.schedule())


def test_faults():
    with pytest.raises(InvalidModelError, match="pixel_format is 'HSV', expected one of RGB, BGR"):
        ops.image_decoder(u8([]), pixel_format="HSV")
    with pytest.raises(InvalidModelError, match=r"the bytes have shape \[1, 1\], expected \[N\]"):
        ops.image_decoder(u8([[0]]))


def test_without_pillow(monkeypatch):
    original = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return original(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnsupportedOpError, match=r'pip install "jaxonnx\[image\]"'):
        ops.image_decoder(u8([]))
