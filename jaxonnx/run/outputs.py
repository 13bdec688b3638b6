"""Several outputs of a model under their ONNX names."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import jax


class Outputs(tuple[Any, ...]):
    """A tuple whose items also have their ONNX names.

    ``out[0]``, ``out["logits"]`` and ``out.logits`` are the same array. It is a PyTree whose
    leaves are the arrays.
    """

    names: tuple[str, ...]

    def __new__(cls, values: Iterable[Any], names: Sequence[str]) -> "Outputs":
        """``values`` under ``names``, one for each."""
        self = super().__new__(cls, values)
        self.names = tuple(names)
        return self

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.names:
                raise KeyError(f"no output is called {key!r}; there are {', '.join(self.names)}")
            key = self.names.index(key)
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        names = self.__dict__.get("names", ())
        if name in names:
            return self[names.index(name)]
        raise AttributeError(f"no output is called {name!r}; there are {', '.join(names)}")

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self), self.names

    def __repr__(self) -> str:
        return f"Outputs({', '.join(f'{n}={v!r}' for n, v in zip(self.names, self, strict=True))})"


def _flatten(outputs: Outputs) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    return tuple(outputs), outputs.names


def _flatten_with_keys(outputs: Outputs) -> tuple[Any, tuple[str, ...]]:
    keys = [jax.tree_util.DictKey(n) for n in outputs.names]
    return tuple(zip(keys, outputs, strict=True)), outputs.names


jax.tree_util.register_pytree_with_keys(
    Outputs, _flatten_with_keys, lambda names, values: Outputs(values, names), _flatten
)
jax.export.register_pytree_node_serialization(
    Outputs,
    serialized_name="jaxonnx.Outputs",
    serialize_auxdata=lambda names: json.dumps(names).encode(),
    deserialize_auxdata=lambda data: tuple(json.loads(data)),
)
