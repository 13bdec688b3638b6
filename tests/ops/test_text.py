"""Strings: their own operators, casts, and the operators that only move values."""

import jax
import numpy as np
import pytest
from helpers import assert_close, f32, i64, run_node, strings, text_model

import jaxonnx
from jaxonnx import ops
from jaxonnx.define.dtypes import STRING
from jaxonnx.errors import (
    DataDependentShapeError,
    InputError,
    InvalidModelError,
    UnsupportedOpError,
)
from jaxonnx.ops._regex import compile_re2


def same(actual, expected):
    """Equal strings in an array of the same shape."""
    assert actual.dtype == STRING
    assert actual.shape == np.shape(expected)
    assert actual.tolist() == expected


def test_concat():
    same(ops.string_concat(strings("a", "é"), strings("b", "")), ["ab", "é"])
    same(ops.string_concat(strings(["a"], ["b"]), strings("x", "y")), [["ax", "ay"], ["bx", "by"]])
    same(ops.string_concat(strings(), strings()), [])
    same(run_node("StringConcat", [strings("a"), strings("b")], opset=20)[0], ["ab"])


@pytest.mark.parametrize(
    ("attributes", "parts", "counts"),
    [
        ({}, [["a", "b"], ["c", ""], ["", ""]], [2, 1, 0]),
        ({"delimiter": ""}, [["a", "b"], ["c", ""], ["", ""]], [2, 1, 0]),
        ({"delimiter": " "}, [["a", "", "b"], ["c", "", ""], ["", "", ""]], [3, 1, 1]),
        ({"maxsplit": 0}, [["a  b"], ["c"], [""]], [1, 1, 0]),
        ({"maxsplit": 1, "delimiter": " "}, [["a", " b"], ["c", ""], ["", ""]], [2, 1, 1]),
    ],
)
def test_split(attributes, parts, counts):
    y, z = run_node("StringSplit", [strings("a  b", "c", "")], opset=20, outputs=2, **attributes)
    same(y, parts)
    assert_close(z, i64(counts))


def test_split_shapes():
    parts, counts = ops.string_split(np.array("a,b", STRING), delimiter=",")
    same(parts, ["a", "b"])
    assert_close(counts, i64(2))
    parts, counts = ops.string_split(np.zeros((0, 3), STRING))
    assert parts.shape == (0, 3, 0)
    assert counts.shape == (0, 3)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, ["Mon", "tue", "STRASSE"]),
        ({"stopwords": ["mon"]}, ["tue", "STRASSE"]),
        ({"stopwords": ["mon"], "is_case_sensitive": 1}, ["Mon", "tue", "STRASSE"]),
        ({"case_change_action": "LOWER", "stopwords": ["TUE"]}, ["mon", "strasse"]),
        ({"case_change_action": "UPPER", "locale": "tr_TR"}, ["MON", "TUE", "STRASSE"]),
        ({"stopwords": ["mon", "tue", "strasse"]}, [""]),
    ],
)
def test_normalizer(attributes, expected):
    x = strings("Mon", "tue", "STRASSE")
    same(run_node("StringNormalizer", [x], opset=10, **attributes)[0], expected)
    same(run_node("StringNormalizer", [x[None]], opset=10, **attributes)[0], [expected])


def test_normalizer_is_the_same_on_every_machine():
    same(ops.string_normalizer(strings("Äß", "é"), case_change_action="UPPER"), ["ÄSS", "É"])
    same(ops.string_normalizer(strings("ÄÉ"), case_change_action="LOWER"), ["äé"])


@pytest.mark.parametrize("shape", [(), (2, 1), (1, 1, 2)])
def test_normalizer_shape(shape):
    with pytest.raises(InvalidModelError, match=r"expected \[C\] or \[1, C\]"):
        ops.string_normalizer(np.full(shape, "a", STRING))


def test_normalizer_action():
    with pytest.raises(InvalidModelError, match="'TITLE', expected one of LOWER, UPPER, NONE"):
        ops.string_normalizer(strings("a"), case_change_action="TITLE")


def test_regex_full_match():
    x = strings(["www.google.com", "a.com", "www.x.com.au"])
    (y,) = run_node("RegexFullMatch", [x], opset=20, pattern=r"www\.[\w.-]+\.\bcom\b")
    assert_close(y, np.array([[True, False, False]]))
    assert_close(ops.regex_full_match(strings("", "a"), pattern=""), np.array([True, False]))
    assert_close(ops.regex_full_match(strings("", "a")), np.array([True, False]))


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("[:alpha:]+", ["alp:"], ["b"]),
        (r"\d\w\s", ["1_ ", "1_\f"], ["٣_ ", "1é ", "1_\v"]),
        (r"\D\W\S", ["٣é\v"], ["3é\v", "٣_\v", "٣é "]),
        (r"[^\d]", ["٣"], ["3"]),
        (r"[^\W\d]+", ["a_"], ["1"]),
        (r"[\s][^\s][\S]", ["\t\va", " é\v"], ["\v\va", "\t a", "\ta\f"]),
        (r"\x41\012\.", ["A\n."], ["A\nx"]),
        ("a$", ["a"], ["a\n"]),
        ("a$\n", [], ["a\n"]),
        ("(?m)a$\n^b", ["a\nb"], []),
        ("(?s).", ["\n"], []),
        (".", ["é"], ["\n"]),
        ("(?i)a|b", ["A", "B"], ["c"]),
        ("(?i)[^a]", ["é"], ["A"]),
        ("(?i:a)b(?-i:c)", ["Abc"], ["AB"]),
        ("(?:a)é", ["aé"], ["aÉ"]),
        ("(?P<n>a)(?<m>b)", ["ab"], []),
        ("a{,2}", ["a{,2}"], ["aa"]),
        ("a{2}b{1,}c{0,1}", ["aabb"], ["aab" * 2]),
        ("a{1000}?b??", ["a" * 1000], ["a" * 999]),
        (r"[]\]a&&[|-]+", ["]a&[|-"], ["^"]),
        (r"[\w-.]+[+--][-\d]", ["a-.,1", "_--"], ["/,1", "a/1"]),
        (r"\bé", [], ["é"]),
        (r"\B", [""], ["a"]),
        (r"\Aa\z", ["a"], ["a\n"]),
    ],
)
def test_patterns_are_those_of_re2(pattern, matches, others):
    compiled = compile_re2(pattern)
    assert [m for m in matches if not compiled.fullmatch(m)] == []
    assert [o for o in others if compiled.fullmatch(o)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "(?=a)",
            "(?<!a)b",
            "(?>a)",
            "(?#a)",
            "(?x)a",
            "(?P=n)",
            r"(a)\1",
            "(a",
            "a)",
            "[a",
            "[]",
        ),
        *("a++", "a?+", "a{2}+", "a**", "a*??", "a{2}{3}", "a{1001}", "a{0,2000}", "a{5000,}"),
        *(r"\Z", r"\G", r"\u0041", r"\_", r"\é", r"\x4", "a\\", r"[\b]", r"[+-\d]", "[b-a]", "[\\"),
        "(" * 5000 + ")" * 5000,
    ],
)
def test_invalid_patterns(pattern):
    with pytest.raises(InvalidModelError, match="is not valid RE2"):
        compile_re2(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "[[:alpha:]]",
            "[a[:^digit:]]",
            r"\pL",
            r"[\p{^Lu}]",
            r"\C",
            r"\Qa.b\E",
            r"\x{e9}",
            r"[\x{e9}]",
        ),
        *(r"\101", "a(?i)b", "(?i)(?s)a", "(?U)a", "(?m:a$)", "(?i-s)a", "^*a", r"\b{2}", "$?"),
        *("(?i)é", r"(?i)\xe9", "(?is:é)"),
    ],
)
def test_patterns_that_are_refused(pattern):
    with pytest.raises(UnsupportedOpError):
        compile_re2(pattern)


GRAMS = {
    "max_gram_length": 2,
    "max_skip_count": 0,
    "min_gram_length": 1,
    "mode": "TF",
    "ngram_counts": [0, 2],
    "ngram_indexes": [2, 0, 1],
    "pool_int64s": [5, 6, 5, 6],  # 5; 6; (5, 6)
}
WORDS = {k: v for k, v in GRAMS.items() if k != "pool_int64s"} | {
    "pool_strings": ["a", "b", "a", "b"]
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [2, 1, 2]),
        ({"min_gram_length": 2}, [0, 1, 0]),
        ({"max_gram_length": 1}, [2, 0, 2]),
        ({"max_skip_count": 1}, [2, 2, 2]),
        ({"mode": "IDF", "weights": [2.0, 3.0, 4.0]}, [3, 4, 2]),
        ({"mode": "TFIDF", "weights": [2.0, 3.0, 4.0]}, [6, 4, 4]),
        ({"mode": "IDF"}, [1, 1, 1]),
    ],
)
def test_tf_idf(changes, expected):
    """In 5 6 7 5 . 6, (5, 6) occurs once next to each other and once with a gap."""
    x = i64([5, 6, 7, 5, 9, 6])
    assert_close(ops.tf_idf_vectorizer(x, **GRAMS | changes), f32(expected))
    rows = np.stack([x, np.zeros_like(x)])
    result = run_node("TfIdfVectorizer", [rows.astype(np.int32)], opset=9, **GRAMS | changes)[0]
    assert_close(result, f32([expected, [0, 0, 0]]))
    words = strings("a", "b", "c", "a", "", "b")
    assert_close(ops.tf_idf_vectorizer(words, **WORDS | changes), f32(expected))


def test_tf_idf_of_nothing():
    assert_close(ops.tf_idf_vectorizer(i64([]), **GRAMS), f32([0, 0, 0]))
    assert_close(ops.tf_idf_vectorizer(np.zeros((2, 0), np.int64), **GRAMS), np.zeros((2, 3), "f4"))
    assert ops.tf_idf_vectorizer(np.zeros((0, 2), np.int64), **GRAMS).shape == (0, 3)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ngram_indexes": [0]}, "3 n-grams, 1 ngram_indexes"),
        ({"ngram_counts": [0, 3]}, "do not fit a pool of 4"),
        ({"mode": "tf"}, "expected TF, IDF or TFIDF"),
    ],
)
def test_tf_idf_errors(changes, text):
    with pytest.raises(InvalidModelError, match=text):
        ops.tf_idf_vectorizer(i64([5]), **GRAMS | changes)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (f32([1, 0.1, 1e10, 1e-7]), ["1", "0.1", "10000000000", "0.0000001"]),
        (f32([np.nan, np.inf, -np.inf, -0.0]), ["NaN", "INF", "-INF", "-0"]),
        (np.array([1e22, 314.15926]), ["1" + "0" * 22, "314.15926"]),
        (np.array([0.1], np.float16), ["0.1"]),
        (i64([2**62, -5]), [str(2**62), "-5"]),
        (np.array([True, False]), ["1", "0"]),
        (np.float32(2), "2"),
    ],
)
def test_cast_to_strings(value, text):
    same(ops.cast(value, to=8), text)
    same(run_node("Cast", [value], opset=13, to=8)[0], text)


@pytest.mark.parametrize(
    ("text", "to", "value"),
    [
        (["3.14", "1e-5", "1E8", " -2"], 1, f32([3.14, 1e-5, 1e8, -2])),
        (["+INF", "inf", "-Inf", "nAn"], 11, np.array([np.inf, np.inf, -np.inf, np.nan])),
        (["9007199254740993", "100.5", "-7"], 7, i64([2**53 + 1, 100, -7])),
        ([str(2**64 - 1)], 13, np.array([2**64 - 1], np.uint64)),
        (["0.5"], 10, np.array([0.5], np.float16)),
        (["1", "0"], 9, np.array([True, False])),
    ],
)
def test_cast_from_strings(text, to, value):
    assert_close(run_node("Cast", [strings(*text)], opset=13, to=to)[0], value)
    if to != 9:
        like = np.zeros(1, value.dtype)
        assert_close(run_node("CastLike", [strings(*text), like], opset=19)[0], value)


def test_cast_of_no_number_names_the_node():
    with pytest.raises(ValueError, match="could not convert string to float: 'Hello'") as info:
        run_node("Cast", [strings("Hello")], opset=13, to=1)
    assert any("Cast-13" in note for note in info.value.__notes__)


W = strings(["a", "b", "c"], ["d", "e", "f"])


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "expected"),
    [
        ("Identity", [W], {}, W.tolist()),
        ("Gather", [W, np.array(1)], {"axis": 1}, ["b", "e"]),
        ("Gather", [W[0], np.array(1)], {}, "b"),
        ("GatherND", [W, i64([0, 1])], {}, "b"),
        ("GatherElements", [W, i64([[0, 2]])], {"axis": 1}, [["a", "c"]]),
        ("ScatterElements", [W[0], i64([0]), strings("z")], {}, ["z", "b", "c"]),
        ("ScatterND", [W, i64([[0]]), W[1:]], {}, [["d", "e", "f"]] * 2),
        ("Concat", [W, W], {"axis": 1}, [["a", "b", "c"] * 2, ["d", "e", "f"] * 2]),
        ("Reshape", [W, i64([-1])], {}, list("abcdef")),
        ("Flatten", [W], {"axis": 0}, [list("abcdef")]),
        ("Where", [np.array([True, False, True]), W[0], strings("z")], {}, ["a", "z", "c"]),
        ("Slice", [W, i64([2]), i64([-9]), i64([1]), i64([-1])], {}, [list("cba"), list("fed")]),
        ("Squeeze", [W[:1], i64([0])], {}, list("abc")),
        ("Unsqueeze", [W[0], i64([0])], {}, [list("abc")]),
        ("Expand", [W[0], i64([2, 3])], {}, [list("abc")] * 2),
        ("Tile", [W[0], i64([2])], {}, list("abcabc")),
        ("Transpose", [W], {}, [["a", "d"], ["b", "e"], ["c", "f"]]),
        ("Pad", [W[0], i64([1, 1]), np.array("q", STRING)], {}, list("qabcq")),
        ("Pad", [W[0], i64([1, 0])], {}, ["", "a", "b", "c"]),
        ("Pad", [W[0], i64([1, 0])], {"mode": "edge"}, list("aabc")),
        ("OneHot", [i64([0, 2]), np.array(3), strings("n", "y")], {}, [list("ynn"), list("nny")]),
        ("ReverseSequence", [W, i64([1, 2, 1])], {}, [list("aec"), list("dbf")]),
        ("Trilu", [W], {}, [["a", "b", "c"], ["", "e", "f"]]),
        ("CenterCropPad", [W, i64([2, 1])], {}, [["b"], ["e"]]),
        ("Compress", [W, np.array([True, False])], {"axis": 0}, [list("abc")]),
    ],
)
def test_moving(op, inputs, attributes, expected):
    same(run_node(op, inputs, opset=18, **attributes)[0], expected)


def test_comparing():
    (y,) = run_node("Equal", [W, W[0]], opset=19)
    assert_close(y, np.array([[True] * 3, [False] * 3]))
    first, second = run_node("Split", [W[0]], opset=18, outputs=2, num_outputs=2)
    same(first, ["a", "b"])
    same(second, ["c"])
    y, *rest = run_node("Unique", [strings("b", "a", "b")], opset=11, outputs=4)
    same(y, ["a", "b"])
    assert [r.tolist() for r in rest] == [[1, 0], [1, 0, 1], [1, 2]]
    assert_close(run_node("Shape", [W], opset=18)[0], i64([2, 3]))
    assert_close(run_node("NonZero", [strings("", "x")], opset=13)[0], i64([[1]]))


FRONT = """
(string[N] text, float[K, D] x) => (float[N, D] y) <float[K, D] table> {
  parts, counts = StringSplit(text)
  some = Cast<to = 1>(counts)
  weights = Unsqueeze(some, last)
  product = MatMul(weights, x)
  y = Exp(product)
}
"""


def front():
    text = FRONT.replace("<float[K, D] table>", "<int64[1] last = {-1}>")
    return jaxonnx.load(text_model(text, opset=20))


def test_numbers_behind_strings_are_compiled():
    model, x = front(), f32([[0, 0.5]])
    assert_close(model(["a b", "c"], x), np.exp(f32([[0, 1], [0, 0.5]])))
    assert model._program.executor.compilations == 1
    model(["c d", "e"], x)
    assert model._program.executor.compilations == 1
    host, compiled = repr(model.schedule()).splitlines()[1], repr(model.schedule())
    assert host.endswith("(StringSplit-20): it handles strings")
    assert "1: compiled, 4 nodes" in compiled


def test_derivatives_behind_strings():
    model = front()
    grads = jax.grad(lambda x: model(["a b", "c"], x).sum())(f32([[0, 0]]))
    assert_close(grads, f32([[3, 3]]))
    with pytest.raises(DataDependentShapeError, match="StringSplit-20"):
        jax.jit(lambda x: model(["a b", "c"], x))(f32([[0, 0]]))


def test_a_table_of_strings():
    """A constant table in front of whose rows numbers are computed."""
    model = jaxonnx.load(
        text_model("""
        (float[N] x) => (string y) <string[2] table = {"no", "yes"}> {
          best = ArgMax<keepdims = 0>(x)
          y = Gather(table, best)
        }""")
    )
    same(model(f32([0, 1])), "yes")
    same(model(f32([1, 0])), "no")
    assert model._program.executor.compilations == 1


@pytest.mark.parametrize(
    "value",
    [["a", "b"], ("a", "b"), np.array(["a", "b"]), np.array(["a", "b"], object), strings("a", "b")],
)
def test_inputs(value):
    model = jaxonnx.load(text_model("(string[N] x) => (string[N] y) {y = Identity(x)}"))
    same(model(value), ["a", "b"])
    assert str(model.inputs[0]) == "string[N]"


def test_inputs_keep_what_numpy_would_cut():
    model = jaxonnx.load(text_model("(string[N] x) => (string[N] y) {y = Identity(x)}"))
    same(model(["a\0", ""]), ["a\0", ""])
    same(model([]), [])


@pytest.mark.parametrize("value", [[1, 2], f32([1]), np.array([None], object), [["a"]]])
def test_wrong_inputs(value):
    model = jaxonnx.load(text_model("(string[N] x) => (string[N] y) {y = Identity(x)}"))
    with pytest.raises(InputError, match=r"input 'x': .*expected string\[N\]"):
        model(value)
