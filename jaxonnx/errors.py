"""The exceptions of jaxonnx: each is also the builtin that fits it best."""


class JaxonnxError(Exception):
    """Base of every error that jaxonnx raises on purpose."""


class InvalidModelError(JaxonnxError, ValueError):
    """The model breaks the ONNX specification."""


class UnsupportedOpError(JaxonnxError, NotImplementedError):
    """The model uses operators, or versions of them, that jaxonnx does not have."""


class InputError(JaxonnxError, TypeError, ValueError):
    """The caller gave a wrong name, count, dtype, rank or size."""


class StaticValueError(JaxonnxError, ValueError):
    """A value that must be known while tracing is only known when the program runs.

    Attributes:
        node: the outermost node that the error comes from, if it comes from one.
    """

    node: object = None


class DataDependentShapeError(StaticValueError):
    """The shape of a result depends on values, so the program cannot be compiled as it is."""


class UnpaddableError(DataDependentShapeError):
    """An operator cannot follow an array of which only a part is real."""


class PrecisionError(JaxonnxError, TypeError):
    """A derivative would silently be computed in single instead of double precision."""
