"""ONNX's own backend suite; what is not passed yet is listed in ``exclusions.py``."""

import exclusions
import pytest
import suite

from jaxonnx.define import registry
from jaxonnx.errors import UnsupportedOpError

pytestmark = pytest.mark.conformance

CASES = suite.load_cases()


def _parameter(case):
    absent = sorted(case.operators() & exclusions.OPERATORS.keys())
    if absent:
        reason, kind = f"{absent[0]}: {exclusions.OPERATORS[absent[0]]}", UnsupportedOpError
    elif case.name in exclusions.CASES:
        reason, kind = exclusions.CASES[case.name], AssertionError
    else:
        return pytest.param(case, id=case.name)
    return pytest.param(case, id=case.name, marks=pytest.mark.xfail(reason=reason, raises=kind))


@pytest.mark.parametrize("case", [_parameter(c) for c in CASES])
def test_case(case):
    suite.check(case)


def test_the_exclusions_are_of_the_suite():
    assert exclusions.CASES.keys() <= {c.name for c in CASES}
    assert exclusions.OPERATORS.keys() <= {n for c in CASES for n in c.operators()}


def test_no_excluded_operator_is_implemented():
    domains = [n.rpartition("::") for n in exclusions.OPERATORS]
    assert not [n for domain, _, n in domains if registry.versions_of(n, domain)]
