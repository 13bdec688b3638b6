"""ONNX's backend interface, as a class and as functions of this module.

``onnx.backend.test.BackendTest(jaxonnx.backend, __name__)`` runs ONNX's own suite on it.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import onnx
import onnx.backend.base
import onnx.helper

from jaxonnx.define.dtypes import type_of
from jaxonnx.define.registry import normalize_domain
from jaxonnx.errors import InputError, JaxonnxError
from jaxonnx.graph.facts import newest_opset
from jaxonnx.loading import load
from jaxonnx.model import Model


class BackendRep(onnx.backend.base.BackendRep):
    """A model ready to run on a device."""

    def __init__(self, model: Model, device: Any) -> None:
        self.model = model
        self.device = device

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs as NumPy arrays of the model's dtypes, strings as ``object``.

        Args:
            inputs: a value for every input, in order or by name, or the value of the only one.
                Inputs with a default may be left out, where values go by order all of them.
            **kwargs: ``key`` is what random numbers are drawn from, by default key 0.
        """
        key = kwargs.get("key", jax.random.key(0))
        args = [*inputs] if isinstance(inputs, (list, tuple)) else [inputs]
        names = self.model.input_names
        if len(args) == len(names) and not isinstance(inputs, Mapping):
            args = [dict(zip(names, args, strict=True))]  # defaults are replaced by name only
        with jax.default_device(self.device):
            outputs = self.model(*args, key=key)
        several = len(self.model.outputs) != 1
        return tuple(_to_numpy(v) for v in (outputs if several else (outputs,)))


class Backend(onnx.backend.base.Backend):
    """Runs ONNX models through JAX."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the device is there and the model can be loaded."""
        del kwargs
        try:
            load(model)
        except JaxonnxError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BackendRep:
        """Load a model, given in any way that :func:`jaxonnx.load` accepts.

        Args:
            model: the model.
            device: such as ``"CPU"`` or ``"CUDA:1"``.
            **kwargs: accepted for other backends' sake and not used.

        Raises:
            InputError: if JAX has no such device.
        """
        del kwargs
        place = _device(device)
        if place is None:
            raise InputError(f"JAX has no device {device!r}")
        with jax.default_device(place):
            return BackendRep(load(model), place)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of a model for ``inputs``, as of :meth:`BackendRep.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node.

        Args:
            node: the node.
            inputs: a value for every input that the node names, in order or by name.
            device: such as ``"CPU"`` or ``"CUDA:1"``.
            outputs_info: accepted for other backends' sake and not used.
            **kwargs: ``opset_version`` is the opset of the node's domain, else the newest.
        """
        del outputs_info
        if not isinstance(inputs, Mapping):
            names = [n for n in node.input if n] if len(inputs) != len(node.input) else node.input
            inputs = dict(zip(names, inputs, strict=True))
        inputs = {n: v for n, v in inputs.items() if n and v is not None}
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [onnx.helper.make_value_info(n, type_of(v)) for n, v in inputs.items()],
            [onnx.ValueInfoProto(name=n) for n in node.output if n],
        )
        domain = normalize_domain(node.domain)
        opset = kwargs.get("opset_version") or newest_opset(domain) or 1
        opsets = [onnx.helper.make_opsetid(domain, opset)]
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        return cls.run_model(model, inputs, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether JAX has the device: ``"CPU"`` always, ``"CUDA"`` and ``"TPU"`` where they are."""
        return _device(device) is not None


def _device(name: str) -> Any:
    """The JAX device that ONNX calls ``name``, or None."""
    platform, _, index = name.partition(":")
    try:
        return jax.devices(platform.lower())[int(index or 0)]
    except (RuntimeError, IndexError, ValueError):
        return None


def _to_numpy(value: Any) -> Any:
    """Arrays as NumPy arrays, also those in sequences and maps."""
    if isinstance(value, (list, tuple)):
        return [_to_numpy(v) for v in value]
    if isinstance(value, dict):
        return {k: _to_numpy(v) for k, v in value.items()}
    if value is None:
        return None
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "T" else array


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
