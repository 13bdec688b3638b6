"""The table of operators: which function implements which schema versions."""

import dataclasses
import functools
import inspect
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import onnx

from jaxonnx.define.schema import (
    GIVEN_BY_US,
    Signature,
    function_signature,
    newest_opset,
    onnx_signature,
    signature_of,
)

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Operator:
    """One function and the schema versions of one ONNX operator that it implements.

    Attributes:
        op_type: the ONNX name, such as ``"LeakyRelu"``.
        domain: the ONNX domain; ``""`` is ``ai.onnx``.
        versions: every schema version that ``function`` implements.
        function: inputs positional in schema order, attributes keyword-only.
        static: as given to :func:`register`, like all that follow.
        symbolic: whether known dimension expressions may be given to the function.
        host: whether it needs concrete values.
        bounded: the function to use where a bound on the size of the result is declared.
        elementwise: whether each element of the result depends on those at its place alone.
        padding: the rule by which it follows arrays of which only a part is real.
        check: what refuses known values of its inputs.
        reads_shapes: whether the result depends on how the inputs are built, not on their values.
        searches: whether it finds something in data rather than computing a shape.
        weights: names of the inputs that are meant to be trained, whatever their size.
        statistics: names of the inputs that are gathered in training rather than trained.
        settings: names of the inputs that say how it works, and are never trained.
        moves: whether the result is made of the elements of the first input, moved or converted.
        product: whether it is a product of matrices or a convolution.
        schema: the schema of an operator that ``onnx.defs`` does not know.
    """

    op_type: str
    domain: str
    versions: tuple[int, ...]
    function: Callable[..., Any]
    static: frozenset[str] = frozenset()
    symbolic: bool = False
    host: bool = False
    bounded: Callable[..., Any] | None = None
    elementwise: bool = False
    padding: Callable[..., Any] | None = None
    check: Callable[..., None] | None = None
    reads_shapes: bool = False
    searches: bool = False
    weights: frozenset[str] = frozenset()
    statistics: frozenset[str] = frozenset()
    settings: frozenset[str] = frozenset()
    moves: bool = False
    product: bool = False
    schema: onnx.defs.OpSchema | None = None

    @functools.cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of ``function`` by name, in order."""
        return inspect.signature(self.function).parameters

    @functools.cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the positional parameters; a variadic one repeats the last name."""
        positional = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.VAR_POSITIONAL,
        )
        return tuple(n for n, p in self.parameters.items() if p.kind in positional)

    @functools.cached_property
    def attributes(self) -> Mapping[str, bool]:
        """Names of the keyword parameters that are attributes, with whether they are required."""
        keywords = {
            n: p for n, p in self.parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY
        }
        empty = inspect.Parameter.empty
        return {n: p.default is empty for n, p in keywords.items() if n not in GIVEN_BY_US}

    @functools.cached_property
    def counts_outputs(self) -> bool:
        """Whether ``function`` takes ``outputs``, the number of outputs that are wanted."""
        return "outputs" in self.parameters

    @functools.cached_property
    def draws(self) -> bool:
        """Whether ``function`` takes a ``key``, from which it draws random numbers."""
        found = self.parameters.get("key")  # LinearAttention has an input of this name
        return found is not None and found.kind is inspect.Parameter.KEYWORD_ONLY

    @functools.cached_property
    def own_signature(self) -> Signature:
        """What is expected of a node where ``onnx.defs`` does not say."""
        return signature_of(self.schema) if self.schema else function_signature(self.function)

    def input_name(self, position: int) -> str:
        """The function's name of the input at ``position``; a variadic one repeats."""
        return self.inputs[min(position, len(self.inputs) - 1)] if self.inputs else ""

    def is_static(self, position: int) -> bool:
        """Whether the input at ``position`` must be known while tracing."""
        return self.input_name(position) in self.static


_OPERATORS: dict[tuple[str, str, int], Operator] = {}


def register(
    op_type: str,
    *versions: int,
    domain: str = "",
    static: Iterable[str] = (),
    symbolic: bool = False,
    host: bool = False,
    bounded: Callable[..., Any] | None = None,
    elementwise: bool = False,
    padding: Callable[..., Any] | None = None,
    check: Callable[..., None] | None = None,
    reads_shapes: bool = False,
    searches: bool = False,
    weights: Iterable[str] = (),
    statistics: Iterable[str] = (),
    settings: Iterable[str] = (),
    moves: bool = False,
    product: bool = False,
    schema: onnx.defs.OpSchema | None = None,
) -> Callable[[Function], Function]:
    """Register a function as the implementation of an ONNX operator.

    The function takes its inputs positional-only in schema order (None for an absent optional
    one, ``*args`` for variadic ones) and its attributes keyword-only under their ONNX names with
    the schema's defaults. It returns one array, or a tuple where the operator has several
    outputs; a list is one sequence value. A keyword ``outputs`` receives the number of outputs
    that the node asks for. ``**attributes`` receives attributes of any name.

    Args:
        op_type: the ONNX name of the operator.
        *versions: every schema version (``since_version``) that the function implements.
        domain: the operator's domain; ``""`` is ``ai.onnx``.
        static: names of the function's inputs that must be known while tracing.
        symbolic: whether the function computes with dimension expressions in NumPy arrays.
        host: whether the function needs concrete values, since the shape of its result depends on
            them or since it computes with strings or maps.
        bounded: a function of the same inputs and attributes and a keyword ``size``, the most
            results that there may be, which gives :class:`~jaxonnx.Padded` arrays.
        elementwise: whether each element of the result depends on the elements at its place in
            the broadcast inputs alone.
        padding: how it follows inputs of which some are :class:`~jaxonnx.Padded`: a function of
            the operator's function, the inputs and the attributes, which gives the outputs such
            that the padding reaches no real element, or None where it cannot. Element-wise
            operators need none, others without one are refused.
        check: a function of the same inputs and attributes that refuses values which the
            specification forbids, as far as they are known. A model calls it before known values
            become traced, so that a constant index out of range is found beside traced data.
        reads_shapes: whether the result depends on how the inputs are built, not on the values in
            them.
        searches: whether it finds something in data, as ArgMax does. Where an operand that must be
            known comes from such a node, the model runs in phases.
        weights: names of the inputs that are weights of the model also where they have a single
            element.
        statistics: names of the inputs that training gathers from data rather than differentiates.
        settings: names of the inputs that say how it works and are never trained, as Clip's bounds.
        moves: whether the result is made of the elements of the first input, moved or converted.
        product: whether it is a product of matrices or a convolution, or made of them: what
            ``Model.astype`` computes in another type.
        schema: what is expected of its nodes, for an operator that ``onnx.defs`` does not know. By
            default it is made from the function's signature.

    Returns:
        A decorator that gives the function back unchanged.

    Raises:
        ValueError: if a version is registered already, none is given, or a name is none of the
            function's inputs.
    """
    domain = normalize_domain(domain)
    if not versions:
        raise ValueError(f"{op_type}: list the schema versions that the function implements")

    def decorate(function: Function) -> Function:
        operator = Operator(
            op_type,
            domain,
            versions,
            function,
            static=frozenset(static),
            symbolic=symbolic,
            host=host,
            bounded=bounded,
            elementwise=elementwise,
            padding=padding,
            check=check,
            reads_shapes=reads_shapes,
            searches=searches,
            weights=frozenset(weights),
            statistics=frozenset(statistics),
            settings=frozenset(settings),
            moves=moves,
            product=product,
            schema=schema,
        )
        for what in ("static", "weights", "statistics", "settings"):
            unknown = getattr(operator, what) - set(operator.inputs)
            if unknown:
                names = f"{what} inputs {sorted(unknown)} are none of {operator.inputs}"
                raise ValueError(f"{op_type}: {names}")
        for version in versions:
            key = (domain, op_type, version)
            if key in _OPERATORS:
                raise ValueError(f"{op_type}-{version} of domain {domain!r} is registered already")
            _OPERATORS[key] = operator
        return function

    return decorate


def lookup(op_type: str, version: int, domain: str = "") -> Operator | None:
    """The operator that implements exactly this schema version, or None."""
    return _OPERATORS.get((normalize_domain(domain), op_type, version))


def implementation(function: Callable[..., Any]) -> Operator:
    """The operator that a function implements.

    Raises:
        ValueError: if it is registered for none.
    """
    for operator in _OPERATORS.values():
        if operator.function is function:
            return operator
    raise ValueError(f"{function.__name__} is registered for no operator")


def signature(op_type: str, version: int, domain: str = "") -> Signature | None:
    """What is expected of a node of this operator; None where nobody says."""
    stated = onnx_signature(op_type, version, normalize_domain(domain))
    if stated is not None:
        return stated
    operator = lookup(op_type, version, domain)
    return None if operator is None else operator.own_signature


def registered() -> tuple[Operator, ...]:
    """Every registered operator, once per function, by domain, name and first version."""
    once = dict.fromkeys(_OPERATORS.values())
    return tuple(sorted(once, key=lambda o: (o.domain, o.op_type, o.versions)))


def versions_of(op_type: str, domain: str = "") -> tuple[int, ...]:
    """The schema versions of an operator that are registered."""
    found = (v for d, name, v in _OPERATORS if (d, name) == (normalize_domain(domain), op_type))
    return tuple(sorted(found))


def version_in_force(op_type: str, opset: int, domain: str = "") -> int | None:
    """The schema version of an operator that an opset import selects, or None.

    A domain without schemas in ``onnx.defs`` has one version for all of its opsets: the newest
    registered one not above ``opset``. Nobody knows what an opset selects that is newer than the
    installed ``onnx``.
    """
    newest = newest_opset(normalize_domain(domain))
    if newest is not None and opset > newest:
        return None
    try:
        return onnx.defs.get_schema(op_type, opset, normalize_domain(domain)).since_version
    except onnx.defs.SchemaError:
        known = [v for v in versions_of(op_type, domain) if v <= opset]
        return max(known) if known and not has_schema(op_type, domain) else None


def has_schema(op_type: str, domain: str = "") -> bool:
    """Whether ``onnx.defs`` knows the operator at any version."""
    return onnx.defs.has(op_type, normalize_domain(domain))


def normalize_domain(domain: str) -> str:
    """``""`` for both spellings of ONNX's own domain."""
    return "" if domain == "ai.onnx" else domain


_FIELD_NAMES = {"IsNaN": "is_nan", "PRelu": "prelu", "Col2Im": "col2im"}


def snake_case(op_type: str) -> str:
    """An operator's name in ``jaxonnx.ops``: ``LeakyRelu`` is ``leaky_relu``, ``If`` is ``if_``."""
    if op_type in _FIELD_NAMES:
        return _FIELD_NAMES[op_type]
    words = op_type.replace("MatMul", "Matmul")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words).lower()
    return f"{name}_" if keyword.iskeyword(name) else name
