"""The choices of `streamd fit --folds 5` on two made sets, beside classifiers of scikit-learn that
are tuned by cross-validation: the lines of the made sets in README.md.

    python choice.py STREAMD [SET]

STREAMD is the program, and SET one of the sets alone. For each set, split and classifier a line says how good the answers for the
held-out rows are, in percent, and in brackets what the folds had said.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

ROWS = 60_000
SPLITS = 1, 2, 3
# The figures by their names in scikit-learn: the function, and the name in the report of fit.
FIGURES = {
    "accuracy": (accuracy_score, "correctness"),
    "balanced_accuracy": (balanced_accuracy_score, "balanced_correctness"),
}
CLASSES = 0.49, 0.36, 0.06, 0.035, 0.03, 0.02, 0.005  # shares, as in covertype
# Scales of ten numbers: elevation, aspect, slope, three distances, three shades, another distance.
SCALES = 280, 112, 7.5, 212, 58, 1559, 27, 20, 38, 1324


def like_covertype():
    """Ten numbers, and one of 4 and one of 40 binary columns set."""
    r = numpy.random.default_rng(1)
    k = len(CLASSES)
    y = r.choice(k, ROWS, p=CLASSES)
    means, spreads = r.normal(0, 0.8, (k, 10)), r.uniform(0.6, 1.4, (k, 10))
    parts = [(means[y] + spreads[y] * r.normal(0, 1, (ROWS, 10))) * SCALES]
    for n in 4, 40:
        chance = numpy.cumsum(r.dirichlet(numpy.full(n, 0.3), k), axis=1)
        one = numpy.minimum((r.random((ROWS, 1)) > chance[y]).sum(axis=1), n - 1)
        parts.append(numpy.eye(n)[one])
    return numpy.hstack(parts), y


def one_in_200():
    """Twelve numbers of scales from e^-3 to e^3, shifted by part of a deviation in a rare class."""
    r = numpy.random.default_rng(2)
    y = (r.random(ROWS) < 1 / 200).astype(int)
    x = r.normal(0, 1, (ROWS, 12)) + y[:, None] * r.uniform(0.3, 1.6, 12)
    return x * numpy.exp(numpy.linspace(-3, 3, 12)), y


def classifiers():
    weights = [None, "balanced"]
    powers = [10.0**i for i in range(-4, 2)]
    yield "Ridge", RidgeClassifier(), {"alpha": [10.0**i for i in range(-3, 6)], "class_weight": weights}
    yield "LinearSVC", LinearSVC(dual=False), {"C": powers, "class_weight": weights}
    yield "Logistic", LogisticRegression(max_iter=1000), {"C": powers, "class_weight": weights}


def choices(estimator, settings, x, y):
    """By figure, the classifier of the best settings and the figure of its folds."""
    settings = {f"{type(estimator).__name__.lower()}__{k}": v for k, v in settings.items()}
    whole = make_pipeline(StandardScaler(), estimator)
    found = GridSearchCV(whole, settings, scoring=list(FIGURES), refit=False, cv=3).fit(x, y).cv_results_
    for score in FIGURES:
        best = numpy.nanargmax(found[f"mean_test_{score}"])
        yield score, clone(whole).set_params(**found["params"][best]).fit(x, y), found[f"mean_test_{score}"][best]


def streamd(program, objective, folder, train, test):
    files = []
    for name, (x, y) in ("train", train), ("test", test):
        files.append(os.path.join(folder, name + ".csv"))
        numpy.savetxt(files[-1], numpy.column_stack([y, x]), fmt="%.9g", delimiter=",")
    asked = ["--objective", "balanced"] if objective == "balanced_correctness" else []
    done = subprocess.run([program, "fit", files[0], "--test", files[1], "--folds", "5", "--json", *asked], check=True, capture_output=True, text=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["test"][objective], answer["held_out"][objective]


SETS = {"like covertype": like_covertype, "one in 200": one_in_200}


def main(program, sets):
    for name in sets:
        x, y = SETS[name]()
        means = {score: {} for score in FIGURES}
        for split in SPLITS:
            x1, x2, y1, y2 = train_test_split(x, y, test_size=0.3, random_state=split, stratify=y)
            with tempfile.TemporaryDirectory() as folder:
                for score, (_, objective) in FIGURES.items():
                    means[score].setdefault("streamd", []).append(streamd(program, objective, folder, (x1, y1), (x2, y2)))
            for of, estimator, settings in classifiers():
                for score, chosen, folds in choices(estimator, settings, x1, y1):
                    means[score].setdefault(of, []).append((FIGURES[score][0](y2, chosen.predict(x2)), folds))
        for score, by in means.items():
            for of, each in by.items():
                test, folds = 100 * numpy.mean(each, axis=0)
                print(f"{name}, {score}, {of}: {test:.2f} ({folds:.2f})", flush=True)
            best = max((of for of in by if of != "streamd"), key=lambda of: numpy.mean(by[of], axis=0)[0])
            apart = 100 * (numpy.array(by["streamd"]) - numpy.array(by[best]))
            error = apart[:, 0].std(ddof=1) / len(SPLITS) ** 0.5
            print(f"  beside {best}: {apart[:, 0].mean():+.2f} ± {error:.2f} ({apart[:, 1].mean():+.2f})", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or SETS)
