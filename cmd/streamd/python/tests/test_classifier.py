"""The classifier: scikit-learn's own checks, and what they do not check."""

import json
import pathlib
import pickle
import subprocess
from typing import Any

import pytest
from conftest import need

np = need("numpy")
pd = need("pandas")
need("sklearn")

from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from streamd import Classifier, ProgramError, StreamdError, find_program

# Checks of scikit-learn that the classifier does not pass, and why.
CHOOSES = {
    "check_sample_weight_equivalence_on_dense_data": "a choice deals rows to folds, so a row of weight 2 is not two rows; "
    "plain=True, which chooses nothing, passes",
    "check_fit_score_takes_y": "it calls partial_fit after fit, whose choices take rows and leave no sums to go on from: "
    "that is an error, and plain=True passes",
}


@parametrize_with_checks([Classifier()], expected_failed_checks=lambda estimator: CHOOSES)
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("name", CHOOSES)
def test_checks_that_pass_where_nothing_is_chosen(name: str) -> None:
    found = [(e, check) for e, check in estimator_checks_generator(Classifier(plain=True)) if check.func.__name__ == name]
    assert len(found) == 1
    for estimator, check in found:
        check(estimator)


def rows(n: int, classes: int = 2, seed: int = 1) -> tuple[Any, Any]:
    r = np.random.default_rng(seed)
    y = r.integers(0, classes, n)
    X = r.normal(size=(n, 4)) + 1e6
    X[np.arange(n), y % 4] += 2
    return X, y


def test_the_model_is_that_of_the_program(tmp_path: pathlib.Path) -> None:
    X, y = rows(500, 3)
    classifier = Classifier().fit(X, y)
    frame = pd.DataFrame(X, columns=["x1", "x2", "x3", "x4"]).assign(label=y)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "model.json").write_bytes(classifier.model_)

    def program(*args: str) -> Any:
        out = subprocess.run([find_program(), *args, "--json"], cwd=tmp_path, check=True, capture_output=True, env={}).stdout
        return json.loads(out.splitlines()[-1])

    assert program("fit", "rows.csv")["w"] == json.loads(classifier.model_)["w"]
    answer = program("predict", "rows.csv", "--model", "model.json")
    assert [int(label) for label in answer["labels"]] == classifier.predict(X).tolist()
    assert answer["probabilities"] == classifier.predict_proba(X).tolist()
    assert answer["values"] == classifier.decision_function(X).tolist()


def test_any_batches_and_any_order_give_the_same_bits() -> None:
    X, y = rows(300, 3)
    weights = np.random.default_rng(2).uniform(0, 3, 300)
    weights[:20] = 0
    whole = Classifier(plain=True, standardise=True).fit(X, y, weights)
    parts = Classifier(plain=True, standardise=True)
    for some in np.array_split(np.random.default_rng(3).permutation(300), 4):
        parts.partial_fit(X[some], y[some], classes=[0, 1, 2], sample_weight=weights[some])
    assert parts.sums_ == whole.sums_
    assert json.loads(parts.model_)["w"] == json.loads(whole.model_)["w"]
    assert (parts.predict(X) == whole.predict(X)).all()


def test_forgets_exactly() -> None:
    X, y = rows(200, 3)
    y = np.array(["ham", "spam", "eggs"])[y]
    never = Classifier(plain=True).fit(X[:150], y[:150])
    saw = Classifier(plain=True).fit(X, y)
    assert saw.sums_ != never.sums_
    saw = pickle.loads(pickle.dumps(saw)).forget(X[150:], y[150:])
    assert saw.sums_ == never.sums_
    assert (saw.decision_function(X) == never.decision_function(X)).all()
    with pytest.raises(ProgramError, match="not all rows of X are among"):
        saw.forget(np.vstack([X, X]), np.concatenate([y, y]))
    assert saw.sums_ == never.sums_  # an error changes nothing

    eggs = y[:150] == "eggs"
    saw.forget(X[:150][eggs], y[:150][eggs])
    assert set(saw.predict(X)) <= {"ham", "spam"}
    assert saw.classes_.tolist() == ["eggs", "ham", "spam"]
    assert (saw.decision_function(X)[:, 0] == -np.inf).all()


def test_one_class_after_the_other() -> None:
    X, y = rows(60)
    classifier = Classifier().partial_fit(X[y == 1], y[y == 1])
    with pytest.raises(ValueError, match="not fitted"):
        classifier.predict(X)
    classifier.partial_fit(X[y == 0], y[y == 0])
    assert classifier.classes_.tolist() == [0, 1]
    assert classifier.sums_ == Classifier(plain=True).fit(X, y).sums_
    assert not hasattr(classifier, "predict_proba")
    state = dict(classifier.__dict__)
    with pytest.raises(ProgramError, match="outside the range"):
        classifier.partial_fit(np.full((1, 4), 1e300), [7])
    assert classifier.__dict__ == state
    classifier.forget(X[y == 0], y[y == 0])
    with pytest.raises(ValueError, match="not fitted"):
        classifier.predict(X)


def test_what_keeps_no_sums_says_so() -> None:
    X, y = rows(100)
    chosen = Classifier().fit(X, y)
    with pytest.raises(ValueError, match="plain=True"):
        chosen.forget(X, y)
    with pytest.raises(ValueError, match="plain=True"):
        chosen.partial_fit(X, y)
    with pytest.raises(ProgramError, match="--kernel"):
        Classifier(kernel="gaussian").partial_fit(X, y)
    with pytest.raises(ValueError, match="not among classes"):
        Classifier().partial_fit(X, y, classes=[0, 7])


def test_in_pipelines_and_searches() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), Classifier())
    peer = make_pipeline(StandardScaler(), LogisticRegression())
    assert cross_val_score(pipeline, X, y, cv=3).mean() > cross_val_score(peer, X, y, cv=3).mean() - 0.02
    search = GridSearchCV(Classifier(plain=True, standardise=True), {"nu": [1e-6, 1.0]}, cv=3, n_jobs=2).fit(X, y)
    assert search.best_params_ == {"nu": 1.0}
    assert search.best_score_ > 0.93


def test_options_reach_the_program() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    kernel = Classifier(kernel="gaussian", basis=20, reduce="kmeans", random_state=3).fit(X, y)
    assert kernel.score(X, y) > 0.95
    assert 3 <= len(json.loads(kernel.model_)["basis"]["points"]) <= 20
    assert kernel.feature_names_in_.tolist() == list(X.columns)
    assert json.loads(Classifier(refine="sparse", nu=1.0).fit(X, y).model_)["method"] == "sparse"

    a, b = rows(400)
    prefers = Classifier(plain=True, class_weight={0: 100.0}).fit(a, b)
    assert (prefers.predict(a) == 0).mean() > 0.8
    rule = {"rules": [{"when": "x1 >= 1000003", "then": "1"}], "within": [0, 2e6]}
    assert json.loads(Classifier(knowledge=rule, nu=1.0).fit(a, b).model_)["knowledge"]
    with pytest.raises(ProgramError, match="--reduce"):
        Classifier(kernel="gaussian", reduce="wrong").fit(a, b)
    with pytest.raises(StreamdError, match="nu"):
        Classifier(nu=-1.0).fit(a, b)


@pytest.mark.parametrize(
    "classes",
    [[-1.0, 1.0], [False, True], ["1", "1.0"], ["True", "true"], ["", "nan"], ["2024-01-01", "2024-01-01T00:00"],
     ["<=50K", ">50K"], [10**15, 10**15 + 1], ["text:1", "1"], ["1=", "1%3D"], [" a", "a"], ["über", "0x1"]],
)  # fmt: skip
def test_classes_of_any_kind(classes: list[Any]) -> None:
    X, codes = rows(40)
    y = np.array(classes)[codes]
    classifier = Classifier(plain=True, class_weight={classes[0]: 1.5}).fit(X, y)
    assert set(classifier.predict(X)) == set(classes)
    assert classifier.score(X, y) > 0.8
    assert classifier.predict(X).dtype == y.dtype


def test_missing_values() -> None:
    X, y = rows(300)
    X[::7, 1] = np.nan
    assert Classifier(missing="mean").fit(X, y).score(X, y) > 0.8
    with pytest.raises(ValueError, match="NaN"):
        Classifier().fit(X, y)


def test_columns_that_have_the_names_of_ours() -> None:
    X, y = rows(100)
    frame = pd.DataFrame(X, columns=["label", "weight", "label_", "a b"])
    classifier = Classifier(plain=True).fit(frame, y, np.ones(100))
    assert (classifier.predict(frame) == Classifier(plain=True).fit(X, y).predict(X)).all()
    assert clone(classifier).get_params() == classifier.get_params()


def visits(n: int) -> tuple[Any, list[str]]:
    """Rows with a text, a number that is missing now and then, and a time."""
    r = np.random.default_rng(8)
    city = r.choice(["graz", "wien", "linz"], n)
    pages = r.integers(0, 100, n).astype(float)
    y = np.where((city == "wien") ^ (r.random(n) < 0.05), "goes", "stays")
    pages[r.random(n) < 0.1] = np.nan
    since = pd.date_range("2026-01-01", periods=n, freq="h")
    return pd.DataFrame({"city": city, "pages": pages, "since": since}), list(y)


@pytest.mark.parametrize("schema", ["auto", {"city": {"kind": "category", "values": ["graz", "wien"], "other": True}, "pages": {"kind": "number", "missing": "mean"}}])
def test_a_schema_takes_frames_as_they_are(schema: Any) -> None:
    X, y = visits(3_000)
    classifier = Classifier(schema=schema).fit(X, y)
    assert classifier.score(X, y) > 0.93
    other_order = X[list(reversed(X.columns))]
    assert (classifier.predict(other_order) == classifier.predict(X)).all()
    dicts = X[["city", "pages", "since"]].astype(object).where(X.notna(), None).to_dict("records")[:100]
    assert (classifier.predict(dicts) == classifier.predict(X[:100])).all()
    again = pickle.loads(pickle.dumps(classifier))
    assert (again.predict_proba(X) == classifier.predict_proba(X)).all()
    with pytest.raises(ValueError, match="no column city, which fit had"):
        classifier.predict(X.drop(columns=["city"]))
    with pytest.raises(TypeError, match="want a frame, or a list of dicts"):
        classifier.predict(X.to_numpy())
    with pytest.raises(ValueError, match="X has 3000 rows, and y has 7"):
        classifier.fit(X, y[:7])
    with pytest.raises(ProgramError, match="town"):
        Classifier(schema={"town": "number"}).fit(X, y)


def test_sums_of_a_schema() -> None:
    X, y = visits(400)
    schema = {"city": {"kind": "category", "values": ["graz", "wien", "linz"]}, "pages": {"kind": "number", "missing": "zero"}}
    one = Classifier(plain=True, schema=schema).fit(X, y)
    two = Classifier(plain=True, schema=schema).partial_fit(X[:300], y[:300]).partial_fit(X[300:], y[300:])
    assert one.sums_ == two.sums_
    assert two.forget(X[300:], y[300:]).sums_ == Classifier(plain=True, schema=schema).fit(X[:300], y[:300]).sums_
