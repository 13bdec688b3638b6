"""ONNX's own backend test suite as a list of cases, and how one of them is checked."""

import collections
import dataclasses
import fcntl
import pathlib
import pickle
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from jaxonnx import backend

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")

_CACHE = pathlib.Path(__file__).parents[2] / ".pytest_cache"
_EXPANDED = re.compile(r"_expanded(_ver\d+)?$")
_READERS: dict[str, tuple[Any, Any]] = {
    "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
    "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
    "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    "map_type": (onnx.MapProto, numpy_helper.to_dict),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One test of the suite.

    Attributes:
        name: as in the suite.
        kind: one of ``KINDS``.
        operator: what a node test is about; ``""`` for whole models.
        model: the serialised model.
        data_sets: pairs of inputs and expected outputs, each in graph order.
        rtol: relative tolerance.
        atol: absolute tolerance.
    """

    name: str
    kind: str
    operator: str
    model: bytes
    data_sets: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float

    @property
    def expanded(self) -> bool:
        """Whether the operator under test is replaced by its function body."""
        return _EXPANDED.search(self.name) is not None

    def operators(self) -> set[str]:
        """Names of all operators in the model, those in subgraphs and functions included."""
        model = onnx.ModelProto.FromString(self.model)
        nodes = [n for f in (model.graph, *model.functions) for n in _all_nodes(f.node)]
        return {_title(n) for n in nodes}


def load_cases() -> list[Case]:
    """All cases, collected once per version of ``onnx``: that takes some 20 seconds."""
    _CACHE.mkdir(exist_ok=True)
    path = _CACHE / f"conformance-{onnx.__version__}.pickle"
    with path.with_suffix(".lock").open("w") as lock:  # pytest-xdist runs several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            partial = path.with_suffix(".partial")
            with warnings.catch_warnings(action="ignore"):  # the suite divides by zero on purpose
                cases = [dataclasses.asdict(c) for c in _collect()]
            partial.write_bytes(pickle.dumps(cases))
            partial.rename(path)
    return [Case(**fields) for fields in pickle.loads(path.read_bytes())]


def check(case: Case) -> None:
    """Run a case.

    Raises:
        AssertionError: if an output differs in structure, dtype, shape or value.
    """
    prepared = backend.prepare(onnx.ModelProto.FromString(case.model))
    for inputs, expected in case.data_sets:
        outputs = prepared.run(inputs)
        assert isinstance(outputs, tuple)
        _compare([*outputs], expected, case.rtol, case.atol, "outputs")


def _collect() -> Iterator[Case]:
    from onnx.backend.test.loader import load_model_tests

    operators: dict[str, str] = {}
    for kind in KINDS:
        tests: list[Any] = sorted(load_model_tests(kind=kind), key=lambda t: t.name)
        for test in tests:
            model, data_sets = test.model, test.data_sets
            if kind == "node":
                base = _EXPANDED.sub("", test.name)  # the plain test is sorted before
                operators.setdefault(base, _title(model.graph.node[0]))
                data_sets = [(_plain(i), _plain(o)) for i, o in data_sets]
            elif test.model_dir is not None:
                model, data_sets = _read(pathlib.Path(test.model_dir))
            else:
                model, data_sets = _read_light(pathlib.Path(onnx.__file__).parent.parent / test.url)
            operator = operators.get(_EXPANDED.sub("", test.name), "")
            content = model.SerializeToString()
            yield Case(test.name, kind, operator, content, data_sets, test.rtol, test.atol)


def _read(folder: pathlib.Path) -> tuple[onnx.ModelProto, Any]:
    """A model on disk and its data sets."""
    model = onnx.load(folder / "model.onnx")
    sides = (("input", model.graph.input), ("output", model.graph.output))
    return model, [
        tuple(
            [
                _read_value(data / f"{role}_{k}.pb", infos[k].type)
                for k in range(len([*data.glob(f"{role}_*.pb")]))
            ]
            for role, infos in sides
        )
        for data in sorted(folder.glob("test_data_set_*"))
    ]


def _read_light(path: pathlib.Path) -> tuple[onnx.ModelProto, Any]:
    """A model without weights of its own, and the suite's inputs for it."""
    from onnx.backend.test.runner import Runner

    model = onnx.load(path)
    stored = {t.name for t in model.graph.initializer}
    inputs = [Runner.generate_dummy_data(i) for i in model.graph.input if i.name not in stored]
    expected = [
        _read_value(path.with_name(f"{path.stem}_output_{k}.pb"), info.type)
        for k, info in enumerate(model.graph.output)
    ]
    return model, [(inputs, expected)]


def _read_value(path: pathlib.Path, kind: onnx.TypeProto) -> Any:
    proto, convert = _READERS[kind.WhichOneof("value")]
    return _plain(convert(proto.FromString(path.read_bytes())))


def _plain(value: Any) -> Any:
    """A value of the suite as arrays, lists, dicts and None."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return None if value is None else np.asarray(value)


def _compare(actual: Any, expected: Any, rtol: float, atol: float, where: str) -> None:
    if isinstance(expected, list):
        assert isinstance(actual, list), f"{where}: {type(actual).__name__}, expected a sequence"
        assert len(actual) == len(expected), f"{where}: {len(actual)} of {len(expected)}"
        for k, (a, e) in enumerate(zip(actual, expected, strict=True)):
            _compare(a, e, rtol, atol, f"{where}[{k}]")
    elif isinstance(expected, dict):
        assert isinstance(actual, dict), f"{where}: {type(actual).__name__}, expected a map"
        assert set(actual) == set(expected), f"{where}: keys {[*actual]}, expected {[*expected]}"
        for k, e in expected.items():
            _compare(actual[k], e, rtol, atol, f"{where}[{k!r}]")
    elif expected is None:
        assert actual is None, f"{where}: {type(actual).__name__}, expected nothing"
    else:
        assert isinstance(actual, np.ndarray), f"{where}: {type(actual).__name__}, expected array"
        assert actual.shape == expected.shape, f"{where}: {actual.shape}, expected {expected.shape}"
        _compare_arrays(actual, expected, rtol, atol, where)


def _compare_arrays(
    actual: np.ndarray, expected: np.ndarray, rtol: float, atol: float, where: str
) -> None:
    if expected.dtype.kind in "OSU":
        assert actual.dtype == object, f"{where}: {actual.dtype}, expected strings"
        wanted = [v.decode() if isinstance(v, bytes) else v for v in expected.ravel().tolist()]
        assert actual.ravel().tolist() == wanted, f"{where}: strings differ"
        return
    assert actual.dtype == expected.dtype, f"{where}: {actual.dtype}, expected {expected.dtype}"
    if expected.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)  # two units in the last place, as the suite allows
    if expected.dtype.kind == "V":  # NumPy does not compare the types of ml_dtypes
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, err_msg=where)


def _title(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def _all_nodes(nodes: Any) -> Iterator[onnx.NodeProto]:
    pending = collections.deque(nodes)
    while pending:
        node = pending.popleft()
        yield node
        for attribute in node.attribute:
            pending.extend(attribute.g.node)
