"""River's checks, the planes of `streamd fit`, and the law that a model is a function of its rows."""

import pickle
import random
from typing import Any

import pytest
from conftest import need

pd = need("pandas")
need("river")
from river import checks, datasets, evaluate, metrics  # noqa: E402
from streamd.river import Classifier  # noqa: E402


@pytest.mark.parametrize("check", [pytest.param(check, id=check.__name__) for check in checks.yield_checks(Classifier())])
def test_river(check: Any) -> None:
    check(Classifier())


def rows_of(seed: int, n: int, classes: int = 2) -> list[tuple[dict, str]]:
    """Rows of features of other scales and means, of which some are left out where they are 0."""
    r = random.Random(seed)
    rows = []
    for _ in range(n):
        k = r.randrange(classes)
        x = {"a": r.gauss(k, 1), "b": 1e3 + 100 * r.gauss(-k, 1), "c": r.choice([0.0, 1.0]), "d": 1e-3 * r.gauss(k % 2, 1)}
        rows.append(({name: v for name, v in x.items() if v or name != "c"}, f"class {k}"))
    return rows


def learned(rows: list, **settings: Any) -> Classifier:
    model = Classifier(**settings)
    for x, y in rows:
        model.learn_one(x, y)
    return model


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("settings", [{}, {"nu": 0.01}, {"nu": 300.0, "standardise": False}, {"nu": 0.001, "standardise": False}])
def test_planes_are_those_of_the_program(classes: int, settings: dict) -> None:
    need("sklearn")
    need("pyarrow")
    import numpy as np
    import streamd

    rows = rows_of(4, 700, classes)
    mine = learned(rows, **settings)
    X = pd.DataFrame([x for x, _ in rows]).fillna(0.0)
    theirs = streamd.Classifier(plain=True, nu=settings.get("nu", 1.0), standardise=settings.get("standardise", True)).fit(X, [y for _, y in rows])
    values = mine._solved().values(X.to_dict("records"))
    assert mine._solved().classes == list(theirs.classes_)
    want = theirs.decision_function(X)
    got = values[:, 1] if classes == 2 else values
    assert np.abs(got - want).max() < 1e-9 * max(1, np.abs(want).max())
    assert (mine.predict_many(X) == theirs.predict(X)).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_model_is_a_function_of_its_rows(seed: int) -> None:
    r = random.Random(seed)
    rows = rows_of(seed, 200, 3)
    gone = rows_of(seed + 100, 100, 4)
    want = learned(rows)
    both = [(row, True) for row in rows] + [(row, False) for row in gone]
    r.shuffle(both)
    model = Classifier()
    for (x, y), _ in both:
        model.learn_one(x, y)
    model = pickle.loads(pickle.dumps(model))
    for x, y in r.sample(gone, len(gone)):
        model.forget_one(x, y)
    assert model.weights == want.weights  # bit for bit
    for x, _ in rows:
        assert model.predict_proba_one(x) == want.predict_proba_one(x)
    many = Classifier()
    many.learn_many(pd.DataFrame([x for x, _ in rows]).fillna(0.0), pd.Series([y for _, y in rows]))
    assert many.weights == want.weights


def test_it_learns() -> None:
    score = evaluate.progressive_val_score(datasets.Phishing(), Classifier(), metrics.Accuracy())
    assert score.get() > 0.87  # logistic regression behind a StandardScaler: 0.88


def test_faults() -> None:
    model = learned(rows_of(1, 10))
    with pytest.raises(ValueError, match="feature 'a' is 'red': want a finite number"):
        model.learn_one({"a": "red"}, "class 0")
    with pytest.raises(ValueError, match="feature 'a' is nan"):
        model.learn_one({"a": float("nan")}, "class 0")
    for x, y in [({"a": 1.0}, "class 9"), ({"z": 1.0}, "class 0")]:
        with pytest.raises(ValueError, match="no row of"):
            model.forget_one(x, y)
    with pytest.raises(ValueError, match="nu 0"):
        Classifier(nu=0)
    assert Classifier().predict_one({"a": 1}) is None and Classifier().predict_proba_one({"a": 1}) == {}
