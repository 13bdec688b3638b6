"""Whether the subgraphs of If, Loop, Scan and SequenceMap fit the nodes that have them."""

from jaxonnx.errors import InvalidModelError
from jaxonnx.graph.plan import Graph, Node


def check_bodies(node: Node, wanted: int) -> None:
    """Refuse a subgraph that takes or gives another number of values than its node.

    Args:
        node: the node.
        wanted: how many outputs it lists in the file, unwanted ones included.

    Raises:
        InvalidModelError: saying what was found and what is expected.
    """
    if node.domain or not node.subgraphs:
        return
    given = len(node.inputs)
    match node.op_type:
        case "If":
            takes, gives, least = 0, wanted, 0
        case "Loop":  # iteration number and condition go in, and the condition comes out
            carried = max(given - 2, 0)
            takes, gives, least = 2 + carried, 1 + wanted, 1 + carried
        case "Scan":
            takes = given - 1 if node.version == _SCAN_WITH_LENGTHS else given
            scanned = node.attributes["num_scan_inputs"]
            if not 1 <= scanned <= takes:
                raise InvalidModelError(
                    f"{node.label}: num_scan_inputs is {scanned}, expected 1 to {takes}"
                )
            gives, least = wanted, takes - scanned
        case "SequenceMap":
            takes, gives, least = given, wanted, 0
        case _:
            return
    for name, body in node.attributes.items():
        if isinstance(body, Graph):
            _check(f"{node.label}: its {name}", "takes", "input", len(body.inputs), takes)
            _check(f"{node.label}: its {name}", "gives", "output", len(body.outputs), gives)
    if gives < least:
        raise InvalidModelError(
            f"{node.label}: {wanted} outputs, expected at least {wanted + least - gives}, one for "
            "each carried value"
        )


_SCAN_WITH_LENGTHS = 8
"""The version of Scan whose first input is the lengths of the sequences."""


def _check(title: str, verb: str, noun: str, found: int, expected: int) -> None:
    if found != expected:
        plural = "" if found == 1 else "s"
        raise InvalidModelError(f"{title} {verb} {found} {noun}{plural}, expected {expected}")
