"""Makes the models of this folder, as users convert them, with the predictions of their libraries.

    pip install scikit-learn skl2onnx onnxmltools lightgbm xgboost
    python tests/data/ml/make.py [FOLDER]

Each model is ``NAME.onnx``; ``expected.json`` has its inputs and what the library itself predicts.
Without a folder the small ones are written here, with one all of them there.
"""

# The libraries are installed for this script alone.
# pyright: reportMissingImports=false

import json
import pathlib
import sys
import warnings

import lightgbm
import numpy as np
import onnx
import xgboost
from onnxmltools.convert import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common import data_types as tools
from skl2onnx import convert_sklearn
from skl2onnx.common import data_types
from sklearn import (
    cluster,
    compose,
    datasets,
    decomposition,
    ensemble,
    gaussian_process,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

warnings.simplefilter("ignore")
HERE = pathlib.Path(__file__).parent
KEPT = {
    "logistic_multi_maps",
    "forest_binary_maps",
    "forest_multi",
    "boosting_binary",
    "histogram_binary",
    "svc_rbf",
    "svc_poly_double",
    "svc_linear",
    "nu_svc",
    "linear_svc",
    "neighbours",
    "gaussian_bayes",
    "perceptron",
    "stacking",
    "imputed_maps",
    "binned",
    "linear_two",
    "tree_regressor_two",
    "boosting_regressor",
    "svr",
    "one_class_svm",
    "gaussian_process_regressor",
    "columns_logistic_maps",
    "columns_forest",
    "labels",
    "lightgbm_binary",
    "lightgbm_words_maps",
    "xgboost_binary",
    "xgboost_multi",
    "xgboost_regressor",
}
"""The models of this folder."""

ROWS = 6
"""Rows of input that are kept for each model."""

x2, y2 = datasets.make_classification(80, 5, n_informative=3, random_state=0)
x3, y3 = datasets.make_classification(
    90, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=1
)
xr, yr = datasets.make_regression(80, 5, noise=3.0, random_state=2)
x2, x3, xr = (a.astype(np.float32) for a in (x2, x3, xr))
yr /= np.abs(yr).max()
words2, words3 = np.array(["no", "yes"])[y2], np.array(["red", "green", "blue"])[y3]
holes = x3.copy()
holes[::4, 1] = np.nan
holes[1::5, 3] = np.nan

_make_attribute = onnx.helper.make_attribute


def _of_python_integers(key, value, *rest, **options):
    """``onnx.helper.make_attribute``, which refuses the NumPy integers that skl2onnx gives it."""
    if isinstance(value, list) and any(isinstance(v, (np.integer, np.bool_, bool)) for v in value):
        value = [int(v) for v in value]
    return _make_attribute(key, value, *rest, **options)


onnx.helper.make_attribute = _of_python_integers

small = {"n_estimators": 3, "max_depth": 3, "random_state": 0}
CLASSIFIERS = {
    "logistic_binary": (linear_model.LogisticRegression(), x2, words2),
    "logistic_multi": (linear_model.LogisticRegression(), x3, words3),
    "ridge_classifier": (linear_model.RidgeClassifier(), x3, y3),
    "sgd_log": (linear_model.SGDClassifier(loss="log_loss", random_state=0), x2, y2),
    "forest_binary": (ensemble.RandomForestClassifier(**small), x2, words2),
    "forest_multi": (ensemble.RandomForestClassifier(**small), x3, words3),
    "extra_trees": (ensemble.ExtraTreesClassifier(**small), x3, y3),
    "tree": (tree.DecisionTreeClassifier(max_depth=4), x3, y3),
    "boosting_binary": (ensemble.GradientBoostingClassifier(**small), x2, y2),
    "boosting_multi": (ensemble.GradientBoostingClassifier(**small), x3, words3),
    "histogram_binary": (
        ensemble.HistGradientBoostingClassifier(max_iter=3, max_depth=3, min_samples_leaf=5),
        holes[y3 < 2],
        y3[y3 < 2],
    ),
    "histogram_multi": (
        ensemble.HistGradientBoostingClassifier(max_iter=2, max_depth=3, min_samples_leaf=5),
        holes,
        y3,
    ),
    "ada_boost": (ensemble.AdaBoostClassifier(n_estimators=3, random_state=0), x3, y3),
    "bagging": (ensemble.BaggingClassifier(n_estimators=2, random_state=0), x2, y2),
    "svc_rbf": (svm.SVC(probability=True, random_state=0), x3[:45], words3[:45]),
    "svc_poly": (svm.SVC(kernel="poly", probability=True, random_state=0), x2[:40], y2[:40]),
    "svc_linear": (svm.SVC(kernel="linear"), x3[:45], y3[:45]),
    "svc_sigmoid": (svm.SVC(kernel="sigmoid"), x2[:40], y2[:40]),
    "nu_svc": (svm.NuSVC(nu=0.3, probability=True, random_state=0), x2[:40], y2[:40]),
    "linear_svc": (svm.LinearSVC(), x3, y3),
    "neighbours": (neighbors.KNeighborsClassifier(3), x3[:30], y3[:30]),
    "neighbours_weighted": (
        neighbors.KNeighborsClassifier(3, weights="distance"),
        x3[:30],
        words3[:30],
    ),
    "gaussian_bayes": (naive_bayes.GaussianNB(), x3, y3),
    "bernoulli_bayes": (naive_bayes.BernoulliNB(), x3, words3),
    "multinomial_bayes": (naive_bayes.MultinomialNB(), np.abs(x3), y3),
    "perceptron": (
        neural_network.MLPClassifier(hidden_layer_sizes=(6,), max_iter=60, random_state=0),
        x3,
        words3,
    ),
    "gaussian_process": (gaussian_process.GaussianProcessClassifier(), x2[:15], y2[:15]),
    "stacking": (
        ensemble.StackingClassifier(
            [("a", tree.DecisionTreeClassifier(max_depth=2)), ("b", naive_bayes.GaussianNB())]
        ),
        x2,
        y2,
    ),
    "voting": (
        ensemble.VotingClassifier(
            [("a", tree.DecisionTreeClassifier(max_depth=2)), ("b", naive_bayes.GaussianNB())],
            voting="soft",
        ),
        x3,
        y3,
    ),
    "imputed": (
        pipeline.make_pipeline(
            impute.SimpleImputer(),
            preprocessing.StandardScaler(),
            linear_model.LogisticRegression(),
        ),
        holes,
        words3,
    ),
    "binned": (
        pipeline.make_pipeline(
            preprocessing.KBinsDiscretizer(3, encode="onehot-dense", quantile_method="linear"),
            preprocessing.Normalizer("l1"),
            linear_model.LogisticRegression(),
        ),
        x2,
        y2,
    ),
    "binarized": (
        pipeline.make_pipeline(preprocessing.Binarizer(threshold=0.2), naive_bayes.BernoulliNB()),
        x2,
        y2,
    ),
}
REGRESSORS = {
    "linear": (linear_model.LinearRegression(), xr, yr),
    "linear_two": (linear_model.Ridge(), xr, np.stack([yr, -2 * yr], 1)),
    "tree_regressor": (tree.DecisionTreeRegressor(max_depth=4), xr, yr),
    "tree_regressor_two": (tree.DecisionTreeRegressor(max_depth=3), xr, np.stack([yr, 1 - yr], 1)),
    "forest_regressor": (ensemble.RandomForestRegressor(**small), xr, yr),
    "extra_trees_regressor": (ensemble.ExtraTreesRegressor(**small), xr, yr),
    "boosting_regressor": (ensemble.GradientBoostingRegressor(**small), xr, yr),
    "histogram_regressor": (
        ensemble.HistGradientBoostingRegressor(max_iter=3, max_depth=3, min_samples_leaf=5),
        holes,
        y3 + 0.5,
    ),
    "svr": (svm.SVR(), xr[:30], yr[:30]),
    "svr_poly": (svm.SVR(kernel="poly", coef0=0.5), xr[:30], yr[:30]),
    "linear_svr": (svm.LinearSVR(max_iter=10_000), xr, yr),
    "neighbours_regressor": (neighbors.KNeighborsRegressor(3), xr[:30], yr[:30]),
    "gaussian_process_regressor": (
        gaussian_process.GaussianProcessRegressor(alpha=0.1),
        xr[:20],
        yr[:20],
    ),
    "perceptron_regressor": (
        neural_network.MLPRegressor(hidden_layer_sizes=(5,), max_iter=60, random_state=0),
        xr,
        yr,
    ),
    "stacking_regressor": (
        ensemble.StackingRegressor(
            [("a", tree.DecisionTreeRegressor(max_depth=2)), ("b", linear_model.Ridge())]
        ),
        xr,
        yr,
    ),
}
OUTLIERS = {
    "isolation_forest": (
        ensemble.IsolationForest(n_estimators=3, max_samples=16, random_state=0),
        xr,
    ),
    "one_class_svm": (svm.OneClassSVM(nu=0.3), xr[:40]),
}
TRANSFORMERS = {
    "pca": (decomposition.PCA(2), xr),
    "kmeans": (cluster.KMeans(3, n_init=2, random_state=0), xr),
    "polynomial": (preprocessing.PolynomialFeatures(2), xr[:, :2]),
    "robust": (preprocessing.RobustScaler(), xr),
}


def column(values: np.ndarray) -> dict[str, object]:
    """An array as JSON."""
    kind = "string" if values.dtype.kind in "OU" else values.dtype.name
    return {"dtype": kind, "shape": [*values.shape], "data": values.ravel().tolist()}


class Folder:
    """Where models go, and what is expected of them."""

    def __init__(self, path: pathlib.Path, kept: set[str]) -> None:
        self.path, self.kept = path, kept
        self.expected: dict[str, object] = {}

    def keep(
        self, name: str, model: onnx.ModelProto, inputs: dict[str, np.ndarray], **expected: object
    ) -> None:
        """Write a model, if it is to be kept, with what is expected by kind of output."""
        if self.kept and name not in self.kept:
            return
        for text in (model.graph, *model.graph.node, model):
            text.doc_string = ""
        (self.path / f"{name}.onnx").write_bytes(model.SerializeToString())
        self.expected[name] = {
            "inputs": {n: column(v) for n, v in inputs.items()},
            "expected": {n: column(np.asarray(v)) for n, v in expected.items()},
        }

    def close(self) -> None:
        """Write what is expected."""
        text = ",\n".join(f"{json.dumps(n)}: {json.dumps(e)}" for n, e in self.expected.items())
        (self.path / "expected.json").write_text("{\n" + text + "\n}\n")


def converted(model, form, columns: int, **options) -> onnx.ModelProto:
    """A scikit-learn model of one matrix as ONNX."""
    kinds = [("x", form([None, columns]))]
    return convert_sklearn(
        model, initial_types=kinds, target_opset={"": 17, "ai.onnx.ml": 3}, **options
    )


def scikit_learn(folder: Folder) -> None:
    """Models of one matrix, some in double precision and with maps of probabilities too."""
    single, double = data_types.FloatTensorType, data_types.DoubleTensorType
    for name, (model, x, y) in CLASSIFIERS.items():
        model.fit(x, y)
        rows = x[:ROWS]
        for suffix, form, zipmap in (
            ("", single, False),
            ("_maps", single, True),
            ("_double", double, False),
        ):
            options = (
                {id(model): {"zipmap": zipmap}}
                if name not in ("linear_svc", "ridge_classifier")
                else None
            )
            try:
                proto = converted(model, form, x.shape[1], options=options)
            except Exception as error:
                print(name, suffix, str(error)[:100].replace("\n", " "))
                continue
            wide = rows.astype(np.float64) if form is double else rows
            scores = (
                {"scores": model.predict_proba(rows)} if hasattr(model, "predict_proba") else {}
            )
            folder.keep(name + suffix, proto, {"x": wide}, label=model.predict(rows), **scores)
    for name, (model, x, y) in REGRESSORS.items():
        model.fit(x, y)
        for suffix, form in (("", single), ("_double", double)):
            rows = x[:ROWS].astype(np.float64 if suffix else np.float32)
            value = model.predict(rows)
            try:
                folder.keep(
                    name + suffix, converted(model, form, x.shape[1]), {"x": rows}, value=value
                )
            except Exception as error:
                print(name, suffix, str(error)[:100].replace("\n", " "))
    for name, (model, x) in OUTLIERS.items():
        model.fit(x)
        proto = convert_sklearn(
            model,
            initial_types=[("x", single([None, x.shape[1]]))],
            target_opset={"": 17, "ai.onnx.ml": 3},
        )
        folder.keep(
            name,
            proto,
            {"x": x[:ROWS]},
            label=model.predict(x[:ROWS]),
            value=model.decision_function(x[:ROWS]),
        )
    for name, (model, x) in TRANSFORMERS.items():
        model.fit(x)
        folder.keep(
            name,
            converted(model, single, x.shape[1]),
            {"x": x[:ROWS]},
            value=model.transform(x[:ROWS]),
        )


def of_columns(folder: Folder) -> None:
    """Pipelines that take columns of strings and numbers, and one that takes text."""
    rng = np.random.default_rng(0)
    count = 60
    age = rng.normal(40, 10, (count, 1)).astype(np.float32)
    age[::7] = np.nan
    sex = rng.choice(["female", "male"], (count, 1))
    town = rng.choice(["Bern", "Oslo", "Rome"], (count, 1))
    rank = rng.integers(1, 4, (count, 1))
    target = np.where((sex[:, 0] == "male") ^ (rank[:, 0] > 2), "lost", "saved")
    import pandas

    frame = pandas.DataFrame(
        {"age": age[:, 0], "sex": sex[:, 0], "town": town[:, 0], "rank": rank[:, 0]}
    )
    numbers = pipeline.make_pipeline(
        impute.SimpleImputer(strategy="median"), preprocessing.StandardScaler()
    )
    for name, last in (
        ("columns_logistic", linear_model.LogisticRegression()),
        ("columns_forest", ensemble.RandomForestClassifier(**small)),
    ):
        prepare = compose.ColumnTransformer(
            [
                ("numbers", numbers, ["age"]),
                ("strings", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["sex", "town"]),
                ("ranks", preprocessing.OrdinalEncoder(), ["rank"]),
            ]
        )
        model = pipeline.make_pipeline(prepare, last).fit(frame, target)
        kinds = [
            ("age", data_types.FloatTensorType([None, 1])),
            ("sex", data_types.StringTensorType([None, 1])),
            ("town", data_types.StringTensorType([None, 1])),
            ("rank", data_types.Int64TensorType([None, 1])),
        ]
        for suffix, zipmap in (("", False), ("_maps", True)):
            proto = convert_sklearn(
                model,
                initial_types=kinds,
                target_opset={"": 17, "ai.onnx.ml": 3},
                options={id(model): {"zipmap": zipmap}},
            )
            inputs = {
                "age": age[:ROWS],
                "sex": sex[:ROWS],
                "town": town[:ROWS],
                "rank": rank[:ROWS],
            }
            folder.keep(
                name + suffix,
                proto,
                inputs,
                label=model.predict(frame[:ROWS]),
                scores=model.predict_proba(frame[:ROWS]),
            )
    model = preprocessing.LabelEncoder().fit(town[:, 0])
    kinds = [("town", data_types.StringTensorType([None]))]
    folder.keep(
        "labels",
        convert_sklearn(model, initial_types=kinds, target_opset={"": 17, "ai.onnx.ml": 3}),
        {"town": town[:ROWS, 0]},
        value=model.transform(town[:ROWS, 0]),
    )


def boosting(folder: Folder) -> None:
    """LightGBM and XGBoost."""
    few = {"n_estimators": 3, "max_depth": 3, "random_state": 0}
    light = few | {"min_child_samples": 5, "verbose": -1}
    models = {
        "lightgbm_binary": (lightgbm.LGBMClassifier(**light), holes[y3 < 2], y3[y3 < 2]),
        "lightgbm_multi": (lightgbm.LGBMClassifier(**light), holes, y3),
        "lightgbm_words": (lightgbm.LGBMClassifier(**light), x3, words3),
        "lightgbm_regressor": (lightgbm.LGBMRegressor(**light), xr, yr),
        "lightgbm_poisson": (lightgbm.LGBMRegressor(objective="poisson", **light), xr, np.abs(yr)),
        "lightgbm_forest": (
            lightgbm.LGBMClassifier(
                boosting_type="rf", bagging_freq=1, bagging_fraction=0.7, **light
            ),
            x2,
            y2,
        ),
        "xgboost_binary": (xgboost.XGBClassifier(**few), holes[y3 < 2], y3[y3 < 2]),
        "xgboost_multi": (xgboost.XGBClassifier(**few), holes, y3),
        "xgboost_regressor": (xgboost.XGBRegressor(**few), holes, y3 + 0.5),
        "xgboost_logistic": (xgboost.XGBRegressor(objective="reg:logistic", **few), xr, np.abs(yr)),
        "xgboost_poisson": (
            xgboost.XGBRegressor(objective="count:poisson", **few),
            xr,
            np.round(np.abs(yr) * 5),
        ),
        "xgboost_forest": (xgboost.XGBRFRegressor(**few), xr, yr),
    }
    for name, (model, x, y) in models.items():
        model.fit(x, y)
        convert = convert_lightgbm if name.startswith("light") else convert_xgboost
        forms = (
            (("", False), ("_maps", True))
            if hasattr(model, "predict_proba") and name.startswith("light")
            else (("", None),)
        )
        for suffix, zipmap in forms:
            extra = {} if zipmap is None else {"zipmap": zipmap}
            try:
                proto = convert(
                    model,
                    initial_types=[("x", tools.FloatTensorType([None, x.shape[1]]))],
                    target_opset=15,
                    **extra,
                )
            except Exception as error:
                print(name, suffix, str(error)[:100].replace("\n", " "))
                continue
            if hasattr(model, "predict_proba"):
                expected = {
                    "label": model.predict(x[:ROWS]),
                    "scores": model.predict_proba(x[:ROWS]),
                }
            else:
                expected = {"value": model.predict(x[:ROWS])}
            folder.keep(name + suffix, proto, {"x": x[:ROWS]}, **expected)


def main() -> None:
    """Make them all."""
    elsewhere = sys.argv[1:]
    folder = Folder(pathlib.Path(elsewhere[0]), set()) if elsewhere else Folder(HERE, KEPT)
    scikit_learn(folder)
    of_columns(folder)
    boosting(folder)
    folder.close()


if __name__ == "__main__":
    main()
