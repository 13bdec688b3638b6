"""The score on ONNX's own backend suite, by kind of test and by operator.

python benchmarks/conformance.py [--only SUBSTRING] [--operators] [--failing]
"""

import argparse
import collections
import pathlib
import sys
import time
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "conformance"))

import suite  # noqa: E402 - beside the tests, which run the same cases


def main() -> None:
    """Run the suite and print its tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="run the cases whose names contain this")
    parser.add_argument("--operators", action="store_true", help="print a line per operator")
    parser.add_argument("--failing", action="store_true", help="print the failing cases")
    options = parser.parse_args()
    start = time.perf_counter()
    cases = [c for c in suite.load_cases() if options.only in c.name]
    faults = {c.name: fault(c) for c in cases}
    print(f"{score(cases, faults)} cases pass ({time.perf_counter() - start:.0f} s)")
    for kind in suite.KINDS:
        print(f"  {kind:18} {score((c for c in cases if c.kind == kind), faults)}")
    for expanded, title in ((False, "node, direct"), (True, "node, expanded")):
        chosen = (c for c in cases if c.kind == "node" and c.expanded == expanded)
        print(f"  {title:18} {score(chosen, faults)}")
    by_operator = collections.defaultdict(list)
    for case in cases:
        if case.kind == "node" and not case.expanded:
            by_operator[case.operator].append(case)
    whole = sum(all(not faults[c.name] for c in own) for own in by_operator.values())
    print(f"  operators of which every case passes: {whole}/{len(by_operator)}")
    for operator, own in sorted(by_operator.items()) if options.operators else ():
        print(f"    {operator:40} {score(own, faults)}")
    for name, text in faults.items() if options.failing else ():
        if text:
            print(f"{name}: {text}")


def fault(case: suite.Case) -> str:
    """Why a case fails in one line; ``""`` if it passes."""
    try:
        suite.check(case)
    except Exception as error:
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text[:200]}"
    return ""


def score(cases: Iterable[suite.Case], faults: dict[str, str]) -> str:
    """How many of the cases pass."""
    results = [not faults[c.name] for c in cases]
    return f"{sum(results)}/{len(results)}"


if __name__ == "__main__":
    main()
