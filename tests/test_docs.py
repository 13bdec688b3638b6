"""What the documents say is so: code runs, commands are those of the CI, tables are up to date."""

import pathlib
import re

import jax
import pytest
from helpers import generator

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", _blocks("python"))
def test_readme_code_runs(code):
    with jax.numpy_dtype_promotion("standard"):  # optax needs it, and users have it
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_readme_commands_are_those_of_the_ci():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    install, test, *_ = [block.strip() for block in _blocks("sh")]
    assert install in script
    assert test in script
    assert install == "pip install . && jaxonnx demo"
    assert "pytest" in test


def test_generated_documents_are_up_to_date():
    assert not generator().stale(), "run python docs/generate.py"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_example_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 80


@pytest.mark.parametrize(
    "document",
    [
        *("README.md", "CONTRIBUTING.md", "docs/design.md", "docs/derivatives.md"),
        *("docs/patterns.md", "docs/choices.md"),
    ],
)
def test_links_lead_somewhere(document):
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
