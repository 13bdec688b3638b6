"""The package imports one way: each part uses only those that stand before it."""

import ast
import pathlib

import pytest

import jaxonnx

ROOT = pathlib.Path(jaxonnx.__file__).parent

ORDER = [
    "errors",
    "define",
    "ops",
    "graph",
    "read",
    "run",
    "optimize",
    "write",
    "summary",
    "model",
    "loading",
    "lora",
    "models",
    "stated",
    "backend",
    "cli",
]
"""The parts of the package, each after those that it may import."""

ALLOWED = {"ops": {"errors", "define"}, "define": {"errors"}}
"""Parts that may import less than all that stands before them."""


def _imports(path):
    """The parts of the package that a file imports, lazily or not."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            names = [a.name for a in node.names] if len(parts) == 1 else [parts[1]]
        elif isinstance(node, ast.Import):
            modules = [a.name.split(".") for a in node.names]
            parts, names = modules[0], [m[1] for m in modules if len(m) > 1]
        else:
            continue
        if parts[0] == "jaxonnx":
            yield from names


def _part(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


FILES = [p for p in sorted(ROOT.rglob("*.py")) if p.parent != ROOT or not p.stem.startswith("__")]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    own = _part(path)
    before = {*ORDER[: ORDER.index(own)], own}
    allowed = ALLOWED.get(own, before) | {own}
    found = {n for n in _imports(path) if n in ORDER}
    assert found <= allowed, f"{own} imports {sorted(found - allowed)}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500


def test_internals_of_jax_are_not_used():
    private = [p for p in FILES if "jax._src" in p.read_text(encoding="utf-8")]
    assert not private


def test_experimental_interfaces_are_in_one_module():
    marks = ("jax.experimental", "jax.interpreters")
    users = [
        p.name
        for p in FILES
        if any(
            f"import {m}" in t or f"from {m}" in t
            for m in marks
            for t in [p.read_text(encoding="utf-8")]
        )
    ]
    assert users == ["experimental.py"]
