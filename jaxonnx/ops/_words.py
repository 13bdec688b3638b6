"""Strings moved by operators that know numbers only."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from jaxonnx.define.dtypes import STRING

Function = TypeVar("Function", bound=Callable[..., Any])


def moves_words(function: Function) -> Function:
    """Let an operator that only moves values work on strings: it moves their numbers.

    The empty string is number 0, so it is what the operator fills with by default.
    """

    @functools.wraps(function)
    def wrapper(*inputs: Any, **attributes: Any) -> Any:
        text = [isinstance(v, np.ndarray) and v.dtype == STRING for v in inputs]
        if not any(text):
            return function(*inputs, **attributes)
        given = [np.ravel(v) for v, t in zip(inputs, text, strict=True) if t]
        words = np.unique(np.concatenate([np.array([""], STRING), *given]))
        numbers = (np.searchsorted(words, v) if t else v for v, t in zip(inputs, text, strict=True))
        return np.asarray(words[np.asarray(function(*numbers, **attributes))], STRING)

    return wrapper  # pyright: ignore[reportReturnType] - functools.wraps keeps the signature
