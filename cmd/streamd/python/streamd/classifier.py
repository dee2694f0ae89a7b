"""scikit-learn's face on `streamd fit`.

    from streamd import Classifier

    classifier = Classifier().fit(X, y)
    classifier.predict_proba(X)

It needs scikit-learn and pyarrow. Each fit and each prediction is a run of the program that comes
with the package: planes, probabilities and labels are those of `streamd fit` and of a daemon. A
classifier that load has made predicts by numpy, and takes neither pyarrow nor the program.
"""

import json
import os
import pathlib
import tempfile
import urllib.parse
from collections.abc import Mapping
from typing import Any, Self

try:
    import numpy as np
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
except ImportError as e:
    raise ImportError(f"streamd.Classifier needs scikit-learn and pyarrow: pip install scikit-learn pyarrow ({e})") from None
try:
    import pyarrow as pa
except ImportError:  # enough for a classifier that load has made
    pa = None

from . import _frames, _program
from ._model import Model

_PIECE_BYTES = 256 << 20  # of one run of predict, which takes 1 GiB at most


def _has_probabilities(classifier: "Classifier") -> bool:
    if classifier._exported is not None:
        lacks = not classifier._exported.has_probabilities
    elif hasattr(classifier, "model_"):
        lacks = not classifier._report().get("calibration") or classifier.decision == "value"
    else:
        lacks = classifier.plain and classifier.folds is None or "value" == classifier.decision or classifier.calibration == "none"
    if lacks:
        raise AttributeError(
            "this model has no probabilities: they take folds with 30 held-out rows of each class, which plain=True and "
            "partial_fit do without, and a decision that goes by them"
        )
    return True


class Classifier(ClassifierMixin, BaseEstimator):
    """The proximal support vector machine and its refinements.

    Parameters are the flags of `streamd fit`, whose help has them in full; None leaves one to the
    program. By default it chooses nu, scaling, balance and refinement on held-out rows, and fits
    probabilities to them.

    nu: weight of the errors against the size of the plane, or "auto".
    plain: choose nothing that no parameter asks for: nu is 1, and planes are neither scaled nor
        balanced nor refined. Then planes are read off exact sums, which the estimator keeps for
        partial_fit and forget: of n features a row takes about as long as n² additions.
    standardise, balanced: True, False or "auto".
    class_weight: weights by class, or "balanced", which is balanced=True.
    method: "psvm", "means" or "lasso".
    refine: how planes are refined on the rows: "none", "line", "full", "logistic", "hinge",
        "sparse" and others, or "auto".
    kernel, basis, reduce, reduce_time, regulariser, sample: a nonlinear classifier, such as
        kernel="gaussian", basis=50, reduce="kmeans". reduce_time is in seconds.
    knowledge, mu: rules that count beside rows: the path of a YAML file, or a dict as it would have.
    machine_mu, machine_epsilon, machine_delta, tolerance: parameters of refinements by programs.
    objective: figure that a choice goes by: "accuracy" or "balanced".
    folds: folds that choices and probabilities are made by.
    calibration, decision, costs: probabilities and the rule of labels; costs by pairs of classes,
        {("ham", "spam"): 10} for a row of ham that is labelled spam.
    missing: "reject", "zero", "mean" or "indicator": what NaN counts as.
    schema: what is made of the columns of a frame, texts and times too: "auto" for what `streamd
        schema infer` proposes, the path of a YAML file, or a dict as it would have. It takes the
        place of missing. X is then a frame, or a list of dicts.
    random_state: seed of folds, sample and basis.

    Features have the names of the columns, or x1, x2 and so on. Classes are known to the program by
    their texts: 1 for 1.0, and text:1.0 for the text 1.0, which it would take for the number. A text
    with =, > or a comma is percent-encoded, too: text:%3E50K.

    After fit, classes_ has the classes, n_features_in_ the number of features, and model_ the
    model in JSON, as bytes: what `streamd predict --model` reads.
    """

    def __init__(
        self,
        *,
        nu: float | str | None = None,
        plain: bool = False,
        standardise: bool | str | None = None,
        balanced: bool | str | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        method: str | None = None,
        refine: str | None = None,
        kernel: str | None = None,
        basis: int | None = None,
        reduce: str | None = None,
        reduce_time: float | None = None,
        regulariser: str | None = None,
        sample: int | None = None,
        knowledge: str | Mapping[str, Any] | None = None,
        mu: float | str | None = None,
        machine_mu: float | None = None,
        machine_epsilon: float | None = None,
        machine_delta: float | None = None,
        tolerance: float | None = None,
        objective: str | None = None,
        folds: int | None = None,
        calibration: str | None = None,
        decision: str | None = None,
        costs: Mapping[tuple[Any, Any], float] | None = None,
        missing: str = "reject",
        schema: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.nu, self.plain, self.standardise, self.balanced = nu, plain, standardise, balanced
        self.class_weight, self.method, self.refine = class_weight, method, refine
        self.kernel, self.basis, self.reduce, self.reduce_time = kernel, basis, reduce, reduce_time
        self.regulariser, self.sample, self.knowledge, self.mu = regulariser, sample, knowledge, mu
        self.machine_mu, self.machine_epsilon, self.machine_delta = machine_mu, machine_epsilon, machine_delta
        self.tolerance, self.objective, self.folds = tolerance, objective, folds
        self.calibration, self.decision, self.costs = calibration, decision, costs
        self.missing, self.schema, self.random_state = missing, schema, random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "reject"
        return tags

    # A model of elsewhere

    _exported: Model | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str], classes: Any = None) -> Self:
        """The classifier of a file of `streamd export --sklearn`. It predicts by numpy, without the program.

        Rows are arrays with the columns of feature_names_in_ in order, frames, or lists of dicts. A
        missing number is NaN, a missing text None. classes are the labels in the order of the model's
        classes; without it they are texts.
        """
        document = pathlib.Path(path).read_bytes()
        exported = Model(document)
        it = cls()
        it.model_, it._exported = document, exported
        it.classes_ = np.array(exported.classes if classes is None else classes)
        if it.classes_.shape != (len(exported.classes),):
            raise ValueError(f"classes are {len(it.classes_)}, but the model has {len(exported.classes)}: {exported.classes}")
        it.feature_names_in_ = np.array(exported.columns, object)
        it.n_features_in_ = len(exported.columns)
        return it

    # Learning

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learns from rows, and forgets what it has learned before. A row of weight 0 is absent."""
        X, y, weight = self._validated(X, y, sample_weight, reset=True)
        self.classes_ = np.unique(y)
        if (known := len(np.unique(y if weight is None else y[weight > 0]))) < 2:
            raise ValueError(f"y has {known} class{'es' * (known != 1)} with rows that weigh anything: learning takes two or more")
        for name in ("sums_", "class_count_", "model_", "_exported"):
            self.__dict__.pop(name, None)
        if self.plain and self._reads_sums():
            self._sum(X, y, weight)
        else:
            self.model_: bytes = self._run(X, y, weight)[0]
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learns from more rows. The model is that of all rows at once, bit for bit.

        The estimator keeps exact sums and no rows, so the settings that no parameter gives are those
        of plain=True, and there are no choices by folds, no refinement and no kernel. classes may
        name all classes at the first call; without it, new ones may come at any call. There is a
        model once two classes have rows.
        """
        first = "sums_" not in self.__dict__
        if first and hasattr(self, "model_"):
            raise ValueError("partial_fit: fit has kept no sums to go on from; plain=True keeps them")
        X, y, weight = self._validated(X, y, sample_weight, reset=first)
        known = np.unique(y) if classes is None else np.unique(classes)
        if classes is not None and not np.isin(y, known).all():
            raise ValueError(f"y has a class that is not among classes: {sorted(set(np.unique(y).tolist()) - set(known.tolist()))}")
        before = dict(self.__dict__)
        try:
            self._know(known)
            self._sum(X, y, weight)
        except BaseException:
            self.__dict__ = before
            raise
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Takes rows out, which have the same numbers, labels and weights as when they came.

        The model is, bit for bit, the one that never saw them. It goes on from partial_fit, or from
        fit with plain=True. Sums do not list their rows: of rows that were never learned from, only
        some are found out, and are an error.
        """
        check_is_fitted(self, "classes_")
        if "sums_" not in self.__dict__:
            raise ValueError("forget: this model keeps no sums that rows can be taken out of; plain=True and partial_fit keep them")
        X, y, weight = self._validated(X, y, sample_weight, reset=False)
        if not np.isin(y, self.classes_).all():
            raise ValueError("forget: y has a class that was never learned from")
        self._sum(X, y, weight, forget=True)
        return self

    def _know(self, classes: Any) -> None:
        """Adds classes to classes_."""
        if not hasattr(self, "class_count_"):
            self.classes_, self.class_count_ = classes, np.zeros(len(classes), np.int64)
            return
        both = np.union1d(self.classes_, classes)
        count = np.zeros(len(both), np.int64)
        count[np.searchsorted(both, self.classes_)] = self.class_count_
        self.classes_, self.class_count_ = both, count

    def _reads_sums(self) -> bool:
        """Whether no parameter asks for what takes rows."""
        return (
            self.kernel in (None, "none") and self.refine in (None, "none") and self.knowledge is None
            and self.folds is None and "auto" not in (self.nu, self.standardise, self.balanced)
        )  # fmt: skip

    def _sum(self, X: Any, y: Any, weight: Any, forget: bool = False) -> None:
        """Adds rows to the sums, or takes them out, and reads the planes off them."""
        if not hasattr(self, "class_count_"):
            self._know(self.classes_)
        counted = y if weight is None else y[weight > 0]
        change = np.bincount(np.searchsorted(self.classes_, counted), minlength=len(self.classes_))
        count = self.class_count_ + (-change if forget else change)
        model, sums = self._run(X, y, weight, keep=True, forget=forget, solves=(count > 0).sum() > 1)
        self.sums_, self.class_count_ = sums, count
        if model:
            self.model_ = model
        else:
            self.__dict__.pop("model_", None)

    def _run(
        self, X: Any, y: Any, weight: Any, keep: bool = False, forget: bool = False, solves: bool = True
    ) -> tuple[bytes, bytes]:
        """Runs fit, and returns the model and the sums. Without two classes the model is empty."""
        with tempfile.TemporaryDirectory(prefix="streamd-") as name:
            folder = pathlib.Path(name)
            rows, kept = folder / "rows.arrows", folder / "kept.sums"
            flags = self._flags(folder)
            before = self.__dict__.get("sums_", b"") if keep else b""
            if before:
                kept.write_bytes(before)
            if keep:
                flags += [f"--sums={kept}"] + ["--forget"] * forget
            table, columns = self._table(X, y, weight)
            with pa.OSFile(str(rows), "wb") as sink:
                _frames.write_stream(sink, table.schema, table.to_batches())
            model = b""
            try:
                model = _program.run("fit", rows, *columns, *flags, "--json").strip().rpartition(b"\n")[2]
            except _program.ProgramError as e:
                # The sums are written before planes are read off them.
                if solves or not kept.exists() or kept.read_bytes() == before:
                    text = str(e).replace(str(rows), "X").replace(str(kept), "the sums")
                    raise _program.ProgramError(text) from None
            return model, kept.read_bytes() if keep else b""

    def _validated(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[Any, Any, Any]:
        if self.schema is not None:
            X = self._framed(X, reset)
            y = column_or_1d(y, warn=True)
            check_classification_targets(y)
            if len(y) != X.num_rows:
                raise ValueError(f"X has {X.num_rows} rows, and y has {len(y)}")
            if sample_weight is not None:
                ones = np.empty((X.num_rows, 1))
                sample_weight = _check_sample_weight(sample_weight, ones, dtype=np.float64, ensure_non_negative=True)
            return X, y, sample_weight
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, order="F", ensure_all_finite=self._finite())
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return X, y, sample_weight

    def _framed(self, X: Any, reset: bool) -> Any:
        """The columns of a frame or of a list of dicts as a table: those of fit, in any order."""
        if isinstance(X, list) and X and isinstance(X[0], Mapping):
            X = pa.Table.from_pylist([dict(row) for row in X])
        if not _frames.is_frame(X):
            raise TypeError(f"schema: X is a {type(X).__name__}, and columns need names: want a frame, or a list of dicts")
        table = _frames.table_of(X)
        if reset:
            self.feature_names_in_, self.n_features_in_ = np.array(table.column_names, object), table.num_columns
        elif missing := set(self.feature_names_in_) - set(table.column_names):
            raise ValueError(f"X has no column {', '.join(sorted(map(str, missing)))}, which fit had")
        return table.select(list(self.feature_names_in_))

    def _finite(self) -> bool | str:
        return True if self.missing == "reject" else "allow-nan"

    def _table(self, X: Any, y: Any, weight: Any) -> tuple[Any, list[str]]:
        """The rows as a table of Arrow, and the flags that name its columns."""
        names = self._features()
        label = _free("label", names)
        codes = np.searchsorted(self.classes_, y).astype(np.int32)
        table = self._features_table(X, names)
        table = table.append_column(label, pa.DictionaryArray.from_arrays(codes, pa.array(self._texts())))
        columns = ["--label", label]
        if weight is not None:
            name = _free("weight", names)
            table = table.append_column(name, pa.array(weight))
            columns += ["--weight", name]
        return table, columns

    def _features_table(self, X: Any, names: list[str]) -> Any:
        if self.schema is not None:
            return X
        # NaN stands for a missing value, which is null in Arrow.
        nulls = self.missing != "reject"
        return pa.table([pa.array(X[:, j], from_pandas=nulls) for j in range(X.shape[1])], names=names)

    def _features(self) -> list[str]:
        named = getattr(self, "feature_names_in_", None)
        return [f"x{j + 1}" for j in range(self.n_features_in_)] if named is None else [str(name) for name in named]

    def _texts(self) -> list[str]:
        """The classes as the program knows them."""
        texts = [_class_text(c) for c in self.classes_]
        if len(set(texts)) < len(texts):
            raise ValueError(f"classes {texts}: their texts must differ")
        return texts

    def _flags(self, folder: pathlib.Path) -> list[str]:
        balanced = self.balanced
        if isinstance(self.class_weight, str):
            if self.class_weight != "balanced":
                raise ValueError(f'class_weight {self.class_weight!r}: want weights by class, or "balanced"')
            balanced = True
        flags = ["--plain"] if self.plain else []
        for flag, value in (
            ("nu", self.nu), ("standardise", self.standardise), ("balanced", balanced), ("method", self.method),
            ("refine", self.refine), ("kernel", self.kernel), ("basis", self.basis), ("reduce", self.reduce),
            ("regulariser", self.regulariser), ("sample", self.sample), ("mu", self.mu), ("machine-mu", self.machine_mu),
            ("machine-epsilon", self.machine_epsilon), ("machine-delta", self.machine_delta), ("tolerance", self.tolerance),
            ("objective", self.objective), ("folds", self.folds), ("calibration", self.calibration),
            ("decision", self.decision), ("missing", self.missing if self.schema is None else None), ("seed", self.random_state),
        ):  # fmt: skip
            if value is not None:
                flags.append(f"--{flag}={_program.text_of(value)}")
        if self.reduce_time is not None:
            flags.append(f"--reduce-time={float(self.reduce_time)!r}s")
        if isinstance(self.class_weight, Mapping) and self.class_weight:
            pairs = (f"{_class_text(c)}={float(w)!r}" for c, w in self.class_weight.items())
            flags.append("--class-weights=" + ",".join(pairs))
        if self.costs:
            pairs = (f"{_class_text(a)}>{_class_text(b)}={float(w)!r}" for (a, b), w in self.costs.items())
            flags.append("--costs=" + ",".join(pairs))
        for flag, value in ("knowledge", self.knowledge), ("schema", self.schema):
            if isinstance(value, Mapping):
                # YAML takes JSON as it is.
                (folder / f"{flag}.yaml").write_text(json.dumps(value))
                value = folder / f"{flag}.yaml"
            if value is not None:
                flags.append(f"--{flag}={value}")
        return flags

    # Predictions

    def predict(self, X: Any) -> Any:
        """The labels of rows."""
        if (model := self._exported) is not None:
            return self.classes_[model.classify(model.values(model.rows(X)))]
        table, index = self._predicted(X)
        label = table.column("label").combine_chunks()
        texts = label.dictionary.to_pylist()
        return self.classes_[np.array([index[text] for text in texts])[label.indices.to_numpy()]]

    def decision_function(self, X: Any) -> Any:
        """The quantity that the rule of labels ranks by: n values for two classes, which are above
        0 for the second of classes_, else n × k."""
        if (model := self._exported) is not None:
            scores = model.scores(model.values(model.rows(X)))
            return scores[:, 0] if len(model.planes) == 1 else scores
        table, index = self._predicted(X)
        values = _columns(table, "value_")
        if len(values) == 1:  # one plane between two classes
            [(plane, value)] = values.items()
            [other] = set(self._report()["classes"]) - {plane}
            values[other] = -value
            if len(self.classes_) == 2:
                return values[self._texts()[1]]
        return self._by_class(values, index, -np.inf)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """The probabilities of the classes: n × k."""
        if (model := self._exported) is not None:
            return model.probabilities(model.values(model.rows(X)))
        table, index = self._predicted(X)
        return self._by_class(_columns(table, "probability_"), index, 0.0)

    def _by_class(self, columns: dict[str, Any], index: dict[str, int], without_rows: float) -> Any:
        out = np.full((len(next(iter(columns.values()))), len(self.classes_)), without_rows)
        for text, column in columns.items():
            out[:, index[text]] = column
        return out

    def _predicted(self, X: Any) -> tuple[Any, dict[str, int]]:
        """The program's answer for rows, and the places in classes_ by the texts of classes."""
        check_is_fitted(self, "model_")
        if self.schema is not None:
            X = self._framed(X, reset=False)
        else:
            X = validate_data(self, X, reset=False, dtype=np.float64, order="F", ensure_all_finite=self._finite())
        names = self._features()
        table = self._features_table(X, names)
        how = ["--label", _free("label", names), "--output", "arrow"]  # there is no label
        at_most = max(1, _PIECE_BYTES * table.num_rows // max(1, table.nbytes))
        parts = []
        with tempfile.NamedTemporaryFile(prefix="streamd-", suffix=".json") as model:
            model.write(self.model_)
            model.flush()
            for begin in range(0, table.num_rows, at_most):
                rows = _frames.stream_of(table.slice(begin, at_most))
                out = _program.run("predict", "-", "--model", model.name, *how, stdin=rows)
                parts.append(pa.ipc.open_stream(out).read_all())
        # Each run has its own dictionary of labels.
        return pa.concat_tables(parts).unify_dictionaries(), {text: i for i, text in enumerate(self._texts())}

    def _report(self) -> dict[str, Any]:
        return json.loads(self.model_)


def _columns(table: Any, prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): table.column(name).to_numpy() for name in table.column_names if name.startswith(prefix)}


def _class_text(c: Any) -> str:
    """The text that the program keeps as it is.

    It takes 1, 1.0 and the text 1.0 for one class, and reads some texts as booleans or times; and
    its flags have pairs with = and > and commas between them. A text that could be taken for these
    is marked and percent-encoded.
    """
    if hasattr(c, "item"):
        c = c.item()
    if isinstance(c, float) and c.is_integer():
        c = int(c)
    if isinstance(c, bool):
        return "true" if c else "false"
    text = str(c)
    if isinstance(c, (int, float)):
        # From 1e15 on numbers have an exponent in the program, but other ones in Python.
        return text if abs(c) < 1e15 and "e" not in text else _MARK + text
    plain = text and text == text.strip() and text[0] not in "0123456789+-." and text.lower() not in _READ
    if plain and not text.startswith(_MARK) and not set(text) & set("=>,"):
        return text
    return _MARK + urllib.parse.quote(text, safe="")


_MARK = "text:"
_READ = ("true", "false", "nan", "inf", "infinity")


def _free(name: str, taken: list[str]) -> str:
    """A name that no feature has."""
    while name in taken:
        name += "_"
    return name
