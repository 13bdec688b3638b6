"""Linear models, support vector machines and preparation of ``ai.onnx.ml``."""

import functools
import itertools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    assert_close,
    f32,
    i64,
    node_model,
    onnxruntime,
    reference,
    run_node,
    strings,
)

import jaxonnx
from jaxonnx.errors import InputError, InvalidModelError
from jaxonnx.ops import ml
from jaxonnx.ops.ml import _scores

DOMAIN = "ai.onnx.ml"
NAN = float("nan")
X = f32([[1, 2], [-1, 0.5], [0, -3], [0.25, 0.5]])
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def as_onnxruntime(op_type, inputs, **options):
    """The outputs of a node, once they are those of onnxruntime."""
    results = run_node(op_type, inputs, opset=1, domain=DOMAIN, **options)
    model = node_model(op_type, inputs, opset=1, domain=DOMAIN, **options)
    for result, expected in zip(results, onnxruntime(model, *inputs), strict=True):
        assert_close(result, np.asarray(expected))
    return results


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 2])
def test_linear_regressor(transform, targets):
    attributes = {"coefficients": [0.5, -0.25, 0.125, 0.5][: 2 * targets], "targets": targets}
    attributes["intercepts"] = [0.5, 0.25][:targets]
    (y,) = as_onnxruntime("LinearRegressor", [X], post_transform=transform, **attributes)
    if transform == "NONE":
        assert_close(y[0], f32([0.5, 1.375][:targets]))


def test_linear_regressor_without_intercepts_and_of_one_row():
    assert_close(ml.linear_regressor(f32([1, 2]), coefficients=(3.0, 4.0)), f32([[11]]))


@pytest.mark.parametrize("transform", TRANSFORMS[:-1])
@pytest.mark.parametrize(("count", "labels"), [(1, [5, 7]), (2, [5, 7]), (3, [1, 2, 3])])
def test_linear_classifier(transform, count, labels):
    as_onnxruntime(
        "LinearClassifier",
        [X],
        outputs=2,
        coefficients=[0.5, -0.25, 0.125, 0.5, -1.0, 0.5][: 2 * count],
        intercepts=[0.5, 0.25, 0.0][:count],
        classlabels_ints=labels,
        post_transform=transform,
    )


def test_linear_classifier_by_hand():
    label, scores = ml.linear_classifier(
        f32([[1, 2], [0, 0]]), coefficients=(1.0, -1.0), classlabels_strings=("a", "b")
    )
    assert label.tolist() == ["a", "a"]
    assert_close(scores, f32([[2, -1], [1, 0]]))
    label, scores = ml.linear_classifier(
        f32([[1, 2]]), coefficients=(1.0, 1.0), classlabels_strings=("a",), intercepts=(0.5,)
    )
    assert label.tolist() == ["1"]
    assert_close(scores, f32([[3.5]]))
    _, scores = ml.linear_classifier(
        f32([[0.5]]), coefficients=(1.4,), classlabels_ints=(0, 1), post_transform="PROBIT"
    )
    assert_close(scores, f32([[-0.5244459, 0.5244459]]), scale=10)


def test_nan_is_no_best_score():
    label, _ = ml.linear_classifier(
        f32([[NAN, 1]]), coefficients=(1.0, 0.0, 0.0, 1.0), classlabels_ints=(4, 6)
    )
    assert label.tolist() == [4]


SUPPORT = {
    "kernel_params": [0.5, 0.25, 2.0],
    "support_vectors": [1.0, 0.0, 0.0, 1.0, -1.0, 1.0, 0.5, 0.5],
    "rho": [0.125],
}
KERNELS = {
    "LINEAR": lambda x, v: x @ v,
    "POLY": lambda x, v: (0.5 * x @ v + 0.25) ** 2,
    "RBF": lambda x, v: np.exp(-0.5 * ((x - v) ** 2).sum()),
    "SIGMOID": lambda x, v: np.tanh(0.5 * x @ v + 0.25),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_regressor_by_hand_and_by_onnxruntime(kernel):
    weights = [1.0, -2.0, 0.5, 3.0]
    (y,) = as_onnxruntime(
        "SVMRegressor", [X], kernel_type=kernel, n_supports=4, coefficients=weights, **SUPPORT
    )
    vectors = f32(SUPPORT["support_vectors"]).reshape(4, 2)
    expected = [
        sum(w * KERNELS[kernel](x, v) for w, v in zip(weights, vectors, strict=True)) + 0.125
        for x in X
    ]
    assert_close(y, f32(expected)[:, None], scale=10)
    (y,) = as_onnxruntime(
        "SVMRegressor", [X], kernel_type=kernel, n_supports=4, coefficients=weights, one_class=1,
        **SUPPORT,
    )  # fmt: skip
    assert_close(y[:, 0], np.where(f32(expected) > 0, f32(1), f32(-1)))


@pytest.mark.parametrize("degree", [3.0, 1.5])
def test_powers_of_other_degrees(degree):
    as_onnxruntime(
        "SVMRegressor", [abs(X)], kernel_type="POLY", n_supports=1, coefficients=[2.0], rho=[0.5],
        kernel_params=[0.5, 0.25, degree], support_vectors=[1.0, 1.0],
    )  # fmt: skip


def test_support_vector_regressor_without_vectors():
    attributes = {"coefficients": [2.0, -1.0], "rho": [0.5], "kernel_params": [0.0] * 3}
    (y,) = as_onnxruntime("SVMRegressor", [X], **attributes)
    assert_close(y, f32([[0.5], [-2], [3.5], [0.5]]))


def classifier(classes, **attributes):
    pairs = classes * (classes - 1) // 2
    rng = np.random.default_rng(classes)
    vectors = [*range(1, classes + 1)]
    count = sum(vectors)
    return {
        "kernel_type": "RBF",
        "kernel_params": [0.5, 0.0, 0.0],
        "support_vectors": rng.normal(size=count * 2).astype(np.float32).tolist(),
        "vectors_per_class": vectors,
        "coefficients": rng.normal(size=count * (classes - 1)).astype(np.float32).tolist(),
        "rho": rng.normal(size=pairs).astype(np.float32).tolist(),
        "classlabels_ints": [*range(10, 10 + classes)],
    } | attributes


@pytest.mark.parametrize("transform", TRANSFORMS[:-1])
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_support_vector_classifier(transform, classes):
    as_onnxruntime("SVMClassifier", [X], outputs=2, post_transform=transform, **classifier(classes))


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_probabilities_by_pairwise_coupling(classes):
    pairs = classes * (classes - 1) // 2
    attributes = classifier(
        classes, prob_a=np.linspace(-2, 1, pairs).tolist(), prob_b=np.linspace(0, 1, pairs).tolist()
    )
    model = node_model("SVMClassifier", [X], opset=1, domain=DOMAIN, outputs=2, **attributes)
    label, scores = jaxonnx.load(model)(X)
    expected = onnxruntime(model, X)
    assert_close(label, np.asarray(expected[0]))
    assert_close(scores, np.asarray(expected[1]), scale=10)
    if classes == 2:  # the reference takes sums for products with more
        assert_close(scores, np.asarray(reference(model, X)[1]), scale=10)
    assert_close(scores.sum(1), np.ones(4, np.float32), scale=10)


@pytest.mark.parametrize(
    ("weights", "classes"),
    [([1.0, -2, 0.5, 1], 2), ([1.0, 2, 0.5, 1], 2), ([1.0, -2, 0.5, 1, -1, 2], 3)],
)
def test_support_vector_classifier_without_vectors(weights, classes):
    as_onnxruntime(
        "SVMClassifier", [X], outputs=2, coefficients=weights, rho=[-0.25],
        kernel_params=[0.0] * 3, classlabels_ints=[*range(5, 5 + classes)],
    )  # fmt: skip


def test_support_vectors_of_strings():
    attributes = classifier(3) | {"classlabels_strings": ["a", "b", "c"]}
    del attributes["classlabels_ints"]
    label, _ = ml.svm_classifier(X, **attributes)
    numbers, _ = ml.svm_classifier(X, **classifier(3))
    assert label.tolist() == ["abc"[k - 10] for k in numbers.tolist()]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rho": [1.0]}, "rho has 1 elements, expected 3"),
        ({"coefficients": [1.0]}, "coefficients has 1 elements, expected 12: 2 rows of 6"),
        ({"support_vectors": [1.0]}, "support_vectors has 1 elements, expected a multiple of 6"),
        ({"vectors_per_class": [1, 2]}, "vectors_per_class has 2 elements, expected 3"),
        ({"prob_a": [1.0] * 3}, "prob_b has 0 elements, expected 3"),
        ({"prob_b": [1.0] * 3}, "prob_a has 0 elements, expected 3"),
        ({"kernel_type": "COSINE"}, "kernel_type is 'COSINE'"),
        ({"kernel_params": [1.0]}, "kernel_params has 1 elements, expected 3"),
        ({"support_vectors": [1.0] * 6}, "the input has 2 features, the model 1"),
        ({"vectors_per_class": [], "coefficients": [1.0] * 6, "rho": []}, "rho has 0 elements"),
    ],
)
def test_support_vector_errors(changes, text):
    with pytest.raises(InvalidModelError, match=text):
        ml.svm_classifier(X, **classifier(3, **changes))


@pytest.mark.parametrize(
    ("function", "attributes", "text"),
    [
        (ml.linear_regressor, {"coefficients": (1.0,)}, "the input has 2 features, the model 1"),
        (ml.linear_regressor, {"coefficients": (1.0,), "targets": 2}, "expected a multiple of 2"),
        (ml.linear_regressor, {}, "coefficients has 0 elements"),
        (
            ml.linear_regressor,
            {"coefficients": (1.0, 2.0), "intercepts": (1.0, 2.0)},
            "intercepts has 2 elements, expected 1",
        ),
        (
            ml.linear_classifier,
            {"coefficients": (1.0,) * 2, "classlabels_ints": (1, 2, 3), "intercepts": (1.0,)},
            "expected a multiple of 3",
        ),
        (ml.linear_classifier, {"coefficients": (1.0,)}, "exactly one of the classlabels"),
        (ml.svm_regressor, {"coefficients": (1.0, 2.0)}, "rho has 0 elements, expected 1"),
        (
            ml.svm_regressor,
            {"coefficients": (1.0,), "rho": (1.0,), "n_supports": 2, "support_vectors": (1.0,) * 4},
            "coefficients has 1 elements, expected 2",
        ),
        (ml.scaler, {"scale": (1.0, 2.0, 3.0)}, "scale has 3 elements, expected 2 or 1"),
        (ml.normalizer, {"norm": "L3"}, "norm is 'L3'"),
        (ml.imputer, {}, "exactly imputed_value_floats is to be given for float32"),
        (
            ml.imputer,
            {"imputed_value_floats": (1.0,), "imputed_value_int64s": (1,)},
            "exactly imputed_value_floats",
        ),
        (ml.imputer, {"imputed_value_floats": (1.0,) * 3}, "has 3 elements, expected 2 or 1"),
        (ml.feature_vectorizer, {"inputdimensions": (1, 2)}, "expected 1: one for each input"),
    ],
)
def test_errors(function, attributes, text):
    with pytest.raises(InvalidModelError, match=text):
        function(X, **attributes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_scaler(dtype):
    x = np.array([[1, 2], [3, 5]], dtype)
    (y,) = as_onnxruntime("Scaler", [x], offset=[1.0, -1], scale=[2.0, 0.5])
    assert_close(y, f32([[0, 1.5], [4, 3]]))
    as_onnxruntime("Scaler", [x], offset=[1.0], scale=[2.0])
    assert_close(ml.scaler(x, scale=(3.0,)), f32(x) * 3)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_normalizer(norm, dtype):
    x = np.array([[3, -4], [0, 0], [-1, -2], [2, 2]], dtype)
    (y,) = as_onnxruntime("Normalizer", [x], norm=norm)
    divisor = {"MAX": 3, "L1": 7, "L2": 5}[norm]
    assert_close(y[:2], f32([[3 / divisor, -4 / divisor], [0, 0]]))
    as_onnxruntime("Normalizer", [x[0]], norm=norm)


def test_normalizer_of_nothing():
    assert ml.normalizer(np.zeros((2, 0), np.float32)).shape == (2, 0)
    assert ml.normalizer(np.zeros((0, 2), np.float32)).shape == (0, 2)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_derivatives_of_normalizer(norm):
    x, step = f32([[3, -4, 1]]), f32([[0.01, 0, 0]])
    gradient = jax.jacrev(functools.partial(ml.normalizer, norm=norm))(x)[0, :, 0, 0]
    slopes = (ml.normalizer(x + step, norm=norm) - ml.normalizer(x - step, norm=norm))[0] / 0.02
    np.testing.assert_allclose(gradient, slopes, rtol=1e-2, atol=1e-3)
    zero = np.zeros((1, 2), np.float32)
    one = f32([[1, 0]])
    for_zero = functools.partial(ml.normalizer, norm=norm)
    assert_close(jax.jvp(for_zero, (zero,), (one,))[1], one)
    assert_close(jax.grad(lambda x: for_zero(x)[0, 0])(zero), one)


@pytest.mark.parametrize("replaced", [NAN, 2.0])
def test_imputer(replaced):
    x = f32([[1, NAN], [2, 4]])
    options = {"replaced_value_float": replaced}
    (y,) = as_onnxruntime("Imputer", [x], imputed_value_floats=[7.0, 8], **options)
    assert_close(y, f32([[1, 8], [2, 4]]) if np.isnan(replaced) else f32([[1, NAN], [7, 4]]))
    as_onnxruntime("Imputer", [x], imputed_value_floats=[7.0], **options)
    function = functools.partial(ml.imputer, imputed_value_floats=(7.0,), **options)
    gradient = jax.grad(lambda v: function(v).sum())(x)
    assert_close(gradient, f32([[1, 0], [1, 1]]) if np.isnan(replaced) else f32([[1, 1], [0, 1]]))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_imputer_of_integers(dtype):
    x = np.array([[1, 3], [3, 2]], dtype)
    options = {"imputed_value_int64s": [-5, 6], "replaced_value_int64": 3}
    (y,) = run_node("Imputer", [x], opset=1, domain=DOMAIN, **options)
    assert_close(y, np.array([[1, 6], [-5, 2]], dtype))
    (y,) = run_node("Imputer", [np.array([0.5, NAN])], opset=1, domain=DOMAIN,
                    imputed_value_floats=[2.0], replaced_value_float=NAN)  # fmt: skip
    assert_close(y, np.array([0.5, 2]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_binarizer(dtype):
    x = np.array([[0, 1], [2, 3]], dtype)
    (y,) = run_node("Binarizer", [x], opset=1, domain=DOMAIN, threshold=1.0)
    assert_close(y, np.array([[0, 0], [1, 1]], dtype))


def test_binarizer_of_nan_and_its_derivative():
    assert_close(ml.binarizer(f32([NAN, 0, 1])), f32([0, 0, 1]))
    assert_close(jax.grad(lambda x: ml.binarizer(x).sum())(f32([0, 1])), f32([0, 0]))


def test_feature_vectorizer():
    x, y, z = f32([[1, 2], [3, 4]]), f32([[5], [6]]), f32([[7, 8], [9, 10]])
    (out,) = as_onnxruntime("FeatureVectorizer", [x, y, z], inputdimensions=[2, 2, 1])
    assert_close(out, f32([[1, 2, 5, 0, 7], [3, 4, 6, 0, 9]]))
    as_onnxruntime("FeatureVectorizer", [i64([1, 2]), i64([3])], inputdimensions=[2, 1])
    assert_close(ml.feature_vectorizer(i64([1, 2]), i64([[3]])), f32([[1, 2, 3]]))
    assert_close(ml.feature_vectorizer(f32([[[1, 2], [3, 4]]])), f32([[1, 2, 3, 4]]))


@pytest.mark.parametrize("known", [True, False])
def test_array_feature_extractor(known):
    data, places = f32([[0, 1, 2], [3, 4, 5]]), i64([[2, 0, 2]])
    (out,) = as_onnxruntime("ArrayFeatureExtractor", [data, places])
    assert_close(out, f32([[2, 0, 2], [5, 3, 5]]))
    as_onnxruntime("ArrayFeatureExtractor", [data[0], places])
    as_onnxruntime("ArrayFeatureExtractor", [data[None, None], places])
    if not known:
        out = jax.jit(ml.array_feature_extractor)(data, np.array([2, 7], np.int32))
        assert_close(out, f32([[2, 2], [5, 5]]))
    gradient = jax.grad(lambda d: ml.array_feature_extractor(d, places).sum())(data)
    assert_close(gradient, f32([[1, 0, 2], [1, 0, 2]]))


def test_array_feature_extractor_of_strings_and_its_errors():
    out = ml.array_feature_extractor(strings("a", "b"), i64([1]))
    assert out.tolist() == [["b"]]
    for place in (2, -1):
        with pytest.raises(InvalidModelError, match=rf"y has {place}, but there are 2 features"):
            ml.array_feature_extractor(f32([1, 2]), i64([place]))


def test_category_mapper():
    cats = {"cats_int64s": [3, 1], "cats_strings": ["c", "a"]}
    options = {"opset": 1, "domain": DOMAIN, "default_string": "?"}
    (y,) = run_node("CategoryMapper", [i64([1, 2, 3])], **options, **cats)
    assert y.tolist() == ["a", "?", "c"]
    (y,) = run_node("CategoryMapper", [strings("a", "b")], opset=1, domain=DOMAIN, **cats)
    assert_close(y, i64([1, -1]))
    with pytest.raises(InvalidModelError, match="2 keys and 1 values"):
        ml.category_mapper(i64([1]), cats_int64s=(1, 2), cats_strings=("a",))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_one_hot_encoder(dtype):
    x = np.array([[1, 5], [7, 1]], dtype)
    (y,) = as_onnxruntime("OneHotEncoder", [x], cats_int64s=[7, 1])
    assert_close(y, f32([[[0, 1], [0, 0]], [[1, 0], [0, 1]]]))
    (y,) = run_node("OneHotEncoder", [x.astype(np.int32)], opset=1, domain=DOMAIN,
                    cats_int64s=[7, 1])  # fmt: skip
    assert_close(y, f32([[[0, 1], [0, 0]], [[1, 0], [0, 1]]]))


def test_one_hot_encoder_of_fractions_nan_and_strings():
    y = ml.one_hot_encoder(f32([1.75, NAN, np.inf, -0.5]), cats_int64s=(0, 1))
    assert_close(y, f32([[0, 1], [0, 0], [0, 0], [1, 0]]))
    y = ml.one_hot_encoder(strings("b", "?"), cats_strings=("a", "b"))
    assert_close(y, f32([[0, 1], [0, 0]]))


def test_elements_that_must_be_categories():
    function = functools.partial(ml.one_hot_encoder, cats_int64s=(0, 1), zeros=0)
    assert_close(function(i64([1])), f32([[0, 1]]))
    with pytest.raises(InputError, match="5 is none of the 2 categories"):
        function(i64([1, 5]))
    y = jax.jit(function)(np.array([1, 5], np.int32))
    assert_close(y, f32([[0, 1], [NAN, NAN]]))


def test_probit():
    """By Winitzki's formula, which is within 0.002 of the exact quantile."""
    p = np.linspace(0.05, 0.95, 10, dtype=np.float32)
    exact = jax.scipy.stats.norm.ppf(p)
    assert np.abs(_scores.probit(p) - exact).max() < 2e-3
    ends = f32([0, 0.5, 1, NAN])
    assert_close(_scores.probit(ends), f32([-np.inf, 0, np.inf, NAN]))
    slope = jax.grad(_scores.probit)(f32(0.5))
    assert_close(slope, f32(np.sqrt(2 * np.pi)))
    assert_close(jax.jvp(_scores.probit, (f32(0.5),), (f32(2),))[1], 2 * slope)


def test_softmax_without_zeros():
    scores = f32([[0, 1, 2], [0, 0, 0], [-1, 0, 1e-8], [NAN, 1, 0]])
    e = np.exp(1)
    expected = f32([[0, 1 / (1 + e), e / (1 + e)], [0, 0, 0], [1, 0, 0], [NAN, NAN, NAN]])
    y = _scores.transformed(jnp.asarray(scores), "SOFTMAX_ZERO")
    assert_close(y[:3], expected[:3])
    assert np.isnan(y[3, :2]).all()


NUMERIC = {
    "linear_regressor": functools.partial(ml.linear_regressor, coefficients=(1.0, 2.0)),
    "svm_regressor": functools.partial(
        ml.svm_regressor, coefficients=(1.0, 2.0), rho=(0.5,), n_supports=2, kernel_type="RBF",
        kernel_params=(0.5, 0.0, 0.0), support_vectors=(1.0, 2, 3, 4),
    ),
    "svm_classifier": lambda x: ml.svm_classifier(
        x, **classifier(3, prob_a=[-1.0, -2, -0.5], prob_b=[0.0, 0.5, 1])
    )[1],
    "linear_classifier": lambda x: ml.linear_classifier(
        x, coefficients=(1.0, 2, 3, 4), classlabels_ints=(0, 1), post_transform="SOFTMAX"
    )[1],
    "scaler": functools.partial(ml.scaler, offset=(1.0, 2.0), scale=(3.0, 4.0)),
    "normalizer": functools.partial(ml.normalizer, norm="L2"),
    "imputer": functools.partial(ml.imputer, imputed_value_floats=(1.0,)),
    "feature_vectorizer": ml.feature_vectorizer,
    "one_hot_encoder": functools.partial(ml.one_hot_encoder, cats_int64s=(0, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMERIC)
def test_platforms_and_symbolic_rows(name):
    (rows,) = jax.export.symbolic_shape("N")
    argument = jax.ShapeDtypeStruct((rows, 2), np.float32)
    platforms = ["cpu", "cuda", "rocm", "tpu"]
    exported = jax.export.export(jax.jit(NUMERIC[name]), platforms=platforms)(argument)
    assert_close(exported.call(jnp.asarray(X)), NUMERIC[name](X))


@pytest.mark.parametrize("name", ["linear_regressor", "svm_regressor", "svm_classifier"])
def test_derivatives(name):
    def function(x):
        return NUMERIC[name](x)

    gradient = jax.jacrev(function)(X[:1])
    step = 1e-2
    for row, column in itertools.product(range(gradient.shape[1]), range(2)):
        shift = np.zeros((1, 2), np.float32)
        shift[0, column] = step
        slope = (function(X[:1] + shift) - function(X[:1] - shift))[0, row] / (2 * step)
        np.testing.assert_allclose(gradient[0, row, 0, column], slope, rtol=2e-2, atol=2e-3)
    assert_close(jax.jacfwd(function)(X[:1]), gradient, scale=10)
