"""River's face on the proximal support vector machine, and on its promise.

    from streamd.river import Classifier

    model = Classifier()
    for x, y in stream:
        answer = model.predict_one(x)
        model.learn_one(x, y)
    model.forget_one(x, y)

It needs River and nothing of the program. The planes are those of `streamd fit --plain
--standardise`, but for rounding.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

try:
    import numpy as np
    import pandas as pd
    from river import base
except ImportError as e:
    raise ImportError(f"streamd.river needs River: pip install river ({e})") from None


class Classifier(base.MiniBatchClassifier):
    """The proximal support vector machine, a plane for each class against the others.

    The model is a function of the set of rows, bit for bit, whatever their order: sums are integers
    of any length, so they are exact, and a row that is forgotten leaves nothing behind. A row of n
    features takes about n²/2 additions, and a model one linear system of n unknowns once rows have
    changed. A feature that a row does not name is 0.

    nu: weight of the errors against the size of the plane (ν of Fung and Mangasarian, 2001).
    standardise: solve in coordinates of mean 0 and variance 1 over all rows, so that features need
        no scaling before.

    The value of a plane estimates 1 for its class and -1 for others, by least squares. A probability
    is read off it as (1 + value)/2, within 0 and 1, and divided by their sum. It is not calibrated.
    """

    def __init__(self, nu: float = 1.0, standardise: bool = True) -> None:
        if not 0 < nu < math.inf:
            raise ValueError(f"nu {nu}: must be above 0")
        self.nu = nu
        self.standardise = standardise
        self._bits = 0  # sums of x are in units of 2^-bits, those of products of 4^-bits
        self._index: dict[Any, int] = {}  # of the features, in the order that they came
        self._count: dict[Any, int] = {}  # rows of each class
        self._sums: dict[Any, list[int]] = {}  # of each class
        self._products: list[list[int]] = []  # of feature i and features 0 to i
        self._planes: _Planes | None = None  # of these sums, once it is asked for

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def weights(self) -> dict[Any, dict[Any, float]]:
        """The plane of each class: a weight of each feature, in the units of the features."""
        planes = self._solved()
        return {c: dict(zip(planes.features, map(float, w), strict=True)) for c, w in zip(planes.classes, planes.w, strict=True)}

    # Learning

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """Adds a row."""
        self._add(self._integers(x), y, 1)

    def forget_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """Takes a row out. The model is the one that never saw it.

        Sums do not list their rows: of a row that was never learned from, only a class without rows
        and a feature that never came are found out.
        """
        if self._count.get(y, 0) == 0 or not self._index.keys() >= x.keys():
            raise ValueError(f"forget_one: no row of {y!r} with these features was learned from")
        self._add(self._integers(x), y, -1)

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Adds the rows of a frame, or none if one of them is wrong."""
        rows = [self._integers(dict(zip(X.columns, row, strict=True))) for row in X.itertuples(index=False, name=None)]
        for row, label in zip(rows, y, strict=True):
            self._add(row, label, 1)

    def _integers(self, x: Mapping[Any, Any]) -> list[tuple[Any, int, int]]:
        """Features, numerators, and the powers of two that are the denominators."""
        row = []
        for name, value in x.items():
            try:
                numerator, denominator = float(value).as_integer_ratio()
            except (TypeError, ValueError, OverflowError):
                raise ValueError(f"feature {name!r} is {value!r}: want a finite number; texts go through a OneHotEncoder before") from None
            row.append((name, numerator, denominator.bit_length() - 1))
        return row

    def _add(self, row: list[tuple[Any, int, int]], y: Any, sign: int) -> None:
        finest = max((bits for _, _, bits in row), default=0)
        if finest > self._bits:
            self._refine(finest - self._bits)
        for name, _, _ in row:
            if name not in self._index:
                self._index[name] = len(self._index)
                self._products.append([0] * len(self._index))
                for sums in self._sums.values():
                    sums.append(0)
        values = sorted((self._index[name], numerator << (self._bits - bits)) for name, numerator, bits in row if numerator)
        self._count[y] = self._count.get(y, 0) + sign
        sums = self._sums.setdefault(y, [0] * len(self._index))
        for at, (i, a) in enumerate(values):
            a *= sign
            sums[i] += a
            products = self._products[i]
            for j, b in values[: at + 1]:
                products[j] += a * b
        if self._count[y] == 0:
            del self._count[y], self._sums[y]
        self._planes = None

    def _refine(self, bits: int) -> None:
        """Makes the unit of the sums smaller."""
        self._bits += bits
        self._sums = {c: [s << bits for s in sums] for c, sums in self._sums.items()}
        self._products = [[p << 2 * bits for p in products] for products in self._products]

    # Predictions

    def predict_one(self, x: Mapping[Any, Any], **kwargs: Any) -> Any:
        """The class of the greatest value; without a row there is none."""
        if len(self._count) < 2:
            return next(iter(self._count), None)
        planes = self._solved()
        return planes.classes[int(np.argmax(planes.values([x])[0]))]

    def predict_proba_one(self, x: Mapping[Any, Any], **kwargs: Any) -> dict[Any, float]:
        if len(self._count) < 2:
            return dict.fromkeys(self._count, 1.0)
        planes = self._solved()
        return dict(zip(planes.classes, map(float, _probabilities(planes.values([x]))[0]), strict=True))

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        if len(self._count) < 2:
            return pd.Series([next(iter(self._count), None)] * len(X), index=X.index, dtype="object")
        planes = self._solved()
        return pd.Series([planes.classes[i] for i in np.argmax(planes.values(X.to_dict("records")), axis=1)], index=X.index)

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        if len(self._count) < 2:
            return pd.DataFrame(1.0, index=X.index, columns=list(self._count))
        planes = self._solved()
        return pd.DataFrame(_probabilities(planes.values(X.to_dict("records"))), index=X.index, columns=planes.classes)

    def _solved(self) -> "_Planes":
        if self._planes is None:
            self._planes = self._solve()
        return self._planes

    def _solve(self) -> "_Planes":
        """The planes. What would cancel is subtracted in integers, before anything is rounded.

        Features and classes are in an order of their own, and features that are 0 in all rows are
        left out, so that the planes do not depend on what came first.
        """
        features = [name for name in sorted(self._index, key=_order) if self._products[self._index[name]][self._index[name]]]
        classes = sorted(self._count, key=_order)
        at = [self._index[name] for name in features]
        n, m, unit = len(at), sum(self._count.values()), 1 << self._bits
        counts, sums = [self._count[c] for c in classes], [self._sums[c] for c in classes]
        total = [sum(of[i] for of in sums) for i in at]
        # The sums of xx' less those of a constant row, and with 1/ν on its diagonal for γ: with
        # standardise those of (x - x̄)(x - x̄)', else what is left once γ (m + 1/ν) = e'Aw - e'De has
        # taken γ out of the system. Both are Σxx' - ΣxΣx'·less/over.
        p, q = float(self.nu).as_integer_ratio()
        less, over = (1, m) if self.standardise else (p, m * p + q)
        matrix = np.empty((n, n))
        for a, i in enumerate(at):
            for b, j in enumerate(at[: a + 1]):
                product = self._products[max(i, j)][min(i, j)]
                matrix[a, b] = matrix[b, a] = (over * product - less * total[a] * total[b]) / (unit * unit * over)
        # A'De in these coordinates, for each class: d is 1 for its rows and -1 for others.
        right = np.array(
            [
                [(over * (2 * of[i] - total[a]) - less * (2 * c - m) * total[a]) / (unit * over) for a, i in enumerate(at)]
                for of, c in zip(sums, counts, strict=True)
            ]
        ).reshape(len(classes), n)
        mean = np.array([t / (unit * m) for t in total])
        scale = np.ones(n)
        if self.standardise:
            scale = np.sqrt(np.diag(matrix) / m)
            scale[scale == 0] = 1.0  # a constant feature has the weight 0
            matrix /= np.outer(scale, scale)
        w = np.linalg.solve(matrix + np.eye(n) / self.nu, (right / scale).T).T / scale
        gamma = np.array([(m - 2 * c) / (m + 1 / self.nu) for c in counts])
        if not self.standardise:
            gamma -= w @ mean / (self.nu * m + 1)  # x'w - γ is (x - x̄)'w less this
        return _Planes(features, classes, w, mean, gamma)


class _Planes:
    """A plane for each class. Its value of x is (x - mean)'w - gamma."""

    def __init__(self, features: list[Any], classes: list[Any], w: Any, mean: Any, gamma: Any) -> None:
        self.features, self.classes, self.w, self.mean, self.gamma = features, classes, w, mean, gamma

    def values(self, rows: Iterable[Mapping[Any, Any]]) -> Any:
        """The values of rows: a row for each, a column for each class."""
        x = np.array([[float(row.get(name, 0.0)) for name in self.features] for row in rows]).reshape(-1, len(self.features))
        return (x - self.mean) @ self.w.T - self.gamma


def _order(name: Any) -> tuple[str, str]:
    return type(name).__name__, repr(name)


def _probabilities(values: Any) -> Any:
    p = np.clip((1 + values) / 2, 0, 1)
    none = p.sum(axis=1) == 0  # all planes say that it is none of theirs
    p[none, np.argmax(values[none], axis=1)] = 1
    return p / p.sum(axis=1, keepdims=True)
