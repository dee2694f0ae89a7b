"""A saved model, evaluated by numpy alone.

It is the arithmetic of the program: the answer of GET /v1/model says what each part means.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_MISSING = ("", "NA", "NaN", "nan", "null", "NULL", "None")


class Model:
    """The model of a document: JSON of `streamd export --sklearn`, of `streamd fit --json` or of GET /v1/model.

    columns are the names of the columns of rows, and texts those of them that are texts.
    """

    def __init__(self, document: bytes | str) -> None:
        report = json.loads(document)
        lacking = [key for key in ("features", "classes", "planes", "decision") if not report.get(key)]
        if lacking:
            raise ValueError(f"this is no model of streamd: it has no {', '.join(lacking)}")
        self.classes: list[str] = report["classes"]
        self.planes: list[str] = [plane["class"] for plane in report["planes"]]
        self._features: list[str] = report["features"]
        self._schema: dict[str, Any] | None = report.get("schema")
        self._missing = {m["feature"]: m for m in report.get("missing") or []}
        self._basis = report.get("basis")
        self._weights = np.array([plane["w"] for plane in report["planes"]], np.float64)
        self._bias = -np.array([plane["gamma"] for plane in report["planes"]], np.float64)
        self._decision = report["decision"]
        self._curves = report.get("calibration") if self._decision["rule"] != "value" else None
        self.texts: set[str] = set()
        if self._schema is None:
            marks = {m["column"] for m in self._missing.values() if m["policy"] == "indicator"}
            self.columns = [name for name in self._features if name not in marks]
        else:
            self.columns = []
            for name in sorted(self._schema, key=_order):
                f = self._schema[name]
                if f["kind"] in ("hash", "time"):
                    raise ValueError(f"feature {name!r} is a {f['kind']}, which only the program computes")
                if f["kind"] in ("ignore", "interaction"):
                    continue
                for column in _sources(name, f):
                    if column not in self.columns:
                        self.columns.append(column)
                    if f["kind"] == "category" or f["kind"] == "bool" and ("true" in f or "false" in f):
                        self.texts.add(column)

    @property
    def has_probabilities(self) -> bool:
        return self._curves is not None

    # Features

    def rows(self, X: Any) -> dict[str, Any]:
        """The columns of rows, which are a frame, a list of dicts, or an array with the columns in order."""
        if isinstance(X, Sequence) and X and isinstance(X[0], Mapping):
            return {name: self._column(name, [row.get(name) for row in X]) for name in self.columns}
        if hasattr(X, "columns"):
            lacking = [name for name in self.columns if name not in X.columns]
            if lacking:
                raise ValueError(f"the rows have no columns {lacking}")
            return {name: self._column(name, X[name]) for name in self.columns}
        X = np.asarray(X, None if self.texts else np.float64)
        if X.ndim != 2 or X.shape[1] != len(self.columns):
            raise ValueError(f"X has shape {X.shape}, but the model has {len(self.columns)} columns: {self.columns}")
        return {name: self._column(name, X[:, j]) for j, name in enumerate(self.columns)}

    def _column(self, name: str, values: Any) -> Any:
        if name not in self.texts:
            return np.asarray(values, np.float64)
        return np.array([_name(value) for value in values], object)

    def features(self, rows: Mapping[str, Any]) -> Any:
        """The m × n features of rows."""
        with np.errstate(invalid="ignore"):
            return self._made(rows) if self._schema is not None else self._filled(rows)

    def _filled(self, rows: Mapping[str, Any]) -> Any:
        made: dict[str, Any] = {}
        for name in self.columns:
            x, absent = rows[name], np.isnan(rows[name])
            if how := self._missing.get(name):
                x = np.where(absent, how.get("mean", 0.0), x)
                if how["policy"] == "indicator":
                    made[how["column"]] = absent.astype(np.float64)
            elif absent.any():
                raise ValueError(f"row {int(absent.argmax())}: column {name!r} is NaN, and its values may not be missing")
            made[name] = x
        return np.column_stack([made[name] for name in self._features])

    def _made(self, rows: Mapping[str, Any]) -> Any:
        assert self._schema is not None
        made: dict[str, Any] = {}
        parts: dict[str, list[str]] = {}
        for name in sorted(self._schema, key=lambda n: (self._schema[n]["kind"] == "interaction", n)):
            f = self._schema[name]
            if f["kind"] == "ignore":
                continue
            if f["kind"] == "interaction":
                a, b = f["of"]
                made |= {f"{i}*{j}": made[i] * made[j] for i in parts[a] for j in parts[b]}
                continue
            sources = _sources(name, f)
            columns = [rows[source] for source in sources]
            missing = f.get("missing", "")
            absent = [np.array([v is None for v in c]) if c.dtype == object else np.isnan(c) for c in columns]
            if not missing:
                for source, where in zip(sources, absent, strict=True):
                    if where.any():
                        raise ValueError(f"row {int(where.argmax())}: column {source!r} has no value, and the schema has no place for that")
            own = {}
            match f["kind"]:
                case "number":
                    own[name] = _number(f, columns[0], absent[0])
                case "list":
                    own = {f"{name}[{j}]": _number(f, c, absent[j]) for j, c in enumerate(columns)}
                case "bool":
                    own[name] = _truth(name, f, columns[0], absent[0])
                case "category":
                    own = _category(name, f, columns[0], absent[0])
                case "buckets":
                    own = _buckets(name, f, columns[0], absent[0])
            if missing == "own":
                own[f"{name}=(missing)"] = absent[0].astype(np.float64)
            parts[name] = list(own)
            made |= own
            if missing in ("mean", "indicator"):
                made[f"{name} missing"] = absent[0].astype(np.float64)
        how = self._missing
        for name, m in how.items():  # of means, where the marks are no features
            if "mean" in m:
                source = _sources(name, self._schema[name])[0]
                made[name] = np.where(np.isnan(rows[source]), m["mean"], made[name])
        return np.column_stack([made[name] for name in self._features])

    # Values

    def values(self, rows: Mapping[str, Any]) -> Any:
        """x'w − γ of each plane: m × p. Products are added in the order of the program."""
        x = self.features(rows)
        if self._basis is not None:
            x = self._coordinates(x)
        values = np.tile(self._bias, (len(x), 1))
        with np.errstate(invalid="ignore", over="ignore"):
            for j in range(x.shape[1]):
                values += x[:, j : j + 1] * self._weights[:, j]
        if not np.isfinite(values).all():
            raise ValueError(f"row {int((~np.isfinite(values)).any(1).argmax())}: its values are no numbers; are its features finite?")
        return values

    def _coordinates(self, x: Any) -> Any:
        b = self._basis
        if "scale" in b:
            x = (x - np.array(b["mean"])) * (1 / np.array(b["scale"]))
        z = np.array(b["points"], np.float64)
        name, _, rest = b["kernel"].partition("(")
        p = {key: float(value) for key, _, value in (part.partition("=") for part in rest.rstrip(")").split(",") if part)}
        if name == "gaussian":
            k = np.empty((len(x), len(z)))
            for i, point in enumerate(z):
                y = -p["gamma"] * ((x - point) ** 2).sum(1)
                k[:, i] = np.where(y < -100, 0, np.exp(y))
        else:
            k = x @ z.T
            if name == "polynomial":
                k = (p["a"] * k + p["b"]) ** int(p["degree"])
            elif name == "sigmoid":
                k = np.tanh(p["a"] * k + p["b"])
        return k @ np.array(b["projection"]).T if "projection" in b else k

    # Decisions

    def classify(self, values: Any) -> Any:
        """The place in classes of each row's label."""
        if len(self.classes) == 2:
            return (values[:, 0] >= self._decision["threshold"]).astype(np.int64)
        match self._decision["rule"]:
            case "value":
                return values.argmax(1)
            case "probability":
                return self._apart(values).argmax(1)
        return self._benefits(values).argmax(1)

    def probabilities(self, values: Any) -> Any:
        """Those of the classes: m × k."""
        apart = self._apart(values)
        if len(self.planes) == 1:
            p = apart[:, 0]
            p = np.where(p == 0.5, np.nextafter(0.5, 1), p)  # the label is the second class then
            return np.column_stack([1 - p, p])
        if self._curves["method"] in ("softmax", "temperature"):
            return apart
        total = apart.sum(1, keepdims=True)
        with np.errstate(invalid="ignore"):
            return np.where(total > 0, apart / total, 1 / len(self.classes))

    def scores(self, values: Any) -> Any:
        """What the rule of labels ranks by, as `streamd predict --values` prints: m × p."""
        rule = self._decision["rule"]
        if rule == "value":
            return values
        if rule == "probability":
            apart = self._apart(values)
            with np.errstate(divide="ignore"):
                scores = np.log(np.clip(apart / (1 - apart), 2.0**-1074, 2.0**53))
        elif self._curves is None:
            scores = values - self._decision["threshold"]
        elif len(self.planes) > 1:
            return self._benefits(values)
        else:
            cost = {(c["class"], c["answer"]): c["cost"] for c in self._decision.get("costs") or []}
            no, yes = self.classes
            p = self._apart(values)
            scores = p * cost.get((yes, no), 1.0) - (1 - p) * cost.get((no, yes), 1.0)
        if len(self.planes) > 1:
            return scores
        yes = values >= self._decision["threshold"]
        return np.where(yes, np.maximum(scores, 0), np.minimum(scores, -math.ulp(0.0)))

    def _apart(self, values: Any) -> Any:
        """The probability of each plane's class against the rest."""
        curves = self._curves["planes"]
        match self._curves["method"]:
            case "platt":
                return _logistic(-(np.array([c["a"] for c in curves]) * values + np.array([c["b"] for c in curves])))
            case "isotonic":
                return np.column_stack([_lines(c["values"], c["probabilities"], values[:, i]) for i, c in enumerate(curves)])
            case "softmax":
                s = values @ np.array([c["weights"] for c in curves]).T + np.array([c["bias"] for c in curves])
            case _:
                s = curves[0]["scale"] * values
        e = np.exp(s - s.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def _benefits(self, values: Any) -> Any:
        """Minus the expected cost of each answer."""
        above = np.zeros((len(self.classes), len(self.classes)))  # cost − 1, by class and answer
        for c in self._decision.get("costs") or []:
            if c["class"] in self.classes and c["answer"] in self.classes:
                above[self.classes.index(c["class"]), self.classes.index(c["answer"])] = c["cost"] - 1
        p = self.probabilities(values)
        return p - 1 - p @ above


def _logistic(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def _lines(knots: list[float], at_knots: list[float], x: Any) -> Any:
    """Straight lines between knots, level beyond them."""
    v, p = np.array(knots), np.array(at_knots)
    i = np.searchsorted(v, x)
    a, b = np.maximum(i - 1, 0), np.minimum(i, len(v) - 1)
    half = np.where(a == b, 1, v[b] / 2 - v[a] / 2)
    return np.clip(p[a] + (p[b] - p[a]) * ((x / 2 - v[a] / 2) / half), p[a], p[b])


def _order(name: str) -> Any:
    """The program's order of features: x2 before x10."""
    tokens = []
    for token in re.findall(rb"[0-9]+|.", name.encode(), re.DOTALL):
        digits = token.lstrip(b"0")
        tokens.append((48, len(digits), digits) if token.isdigit() else (token[0], 0, b""))
    return tokens, name.encode()


def _sources(name: str, f: Mapping[str, Any]) -> list[str]:
    source = f.get("from") or name
    return [f"{source}[{j}]" for j in range(f["length"])] if f["kind"] == "list" else [source]


def _name(value: Any) -> str | None:
    """A value of a column of texts as the schema has it: None for a missing one."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isnan(value):
            return None
        value = int(value) if value.is_integer() else value
    if value is None or str(value) in _MISSING or str(value) == "<NA>":
        return None
    return str(value)


def _absent_number(f: Mapping[str, Any]) -> float:
    """What a missing value of a number counts as."""
    missing = f.get("missing", "")
    return 0.0 if missing in ("", "zero", "mean", "indicator") else float(missing)


def _number(f: Mapping[str, Any], x: Any, absent: Any) -> Any:
    if "clip" in f:
        x = np.clip(x, *f["clip"])
    if f.get("log1p"):
        if (x <= -1).any():
            raise ValueError(f"row {int((x <= -1).argmax())}: {x[(x <= -1).argmax()]} has no log1p, which takes numbers above -1")
        x = np.log1p(x)
    return np.where(absent, _absent_number(f), x)


def _truth(name: str, f: Mapping[str, Any], x: Any, absent: Any) -> Any:
    if x.dtype == object:
        trues, falses = f.get("true") or ["true", "1"], f.get("false") or ["false", "0"]
        is_true, is_false = np.array([v in trues for v in x]), np.array([v in falses for v in x])
    else:
        is_true, is_false = x == 1, x == 0
    if (other := ~(is_true | is_false | absent)).any():
        raise ValueError(f"row {int(other.argmax())}: {x[other.argmax()]!r} is neither true nor false of {name!r}")
    return (is_true & ~absent).astype(np.float64)


def _category(name: str, f: Mapping[str, Any], x: Any, absent: Any) -> dict[str, Any]:
    own = {f"{name}={value}": (x == value).astype(np.float64) for value in f["values"]}
    other = ~np.array([v in f["values"] for v in x], bool) & ~absent
    if f.get("other"):
        if f.get("missing") == "other":
            other = other | absent
        own[f"{name}=(other)"] = other.astype(np.float64)
    elif other.any():
        raise ValueError(f"row {int(other.argmax())}: {x[other.argmax()]!r} is none of the values of {name!r} in the schema")
    return own


def _buckets(name: str, f: Mapping[str, Any], x: Any, absent: Any) -> dict[str, Any]:
    bounds = np.array(f["bounds"])
    place = np.where(absent, -1, np.searchsorted(bounds, x, side="right"))
    # The columns' names are those of the model, in the order of the buckets.
    return {bucket: (place == i).astype(np.float64) for i, bucket in enumerate(_bucket_names(name, f))}


def _bucket_names(name: str, f: Mapping[str, Any]) -> list[str]:
    if "names" in f:
        return [f"{name}={bucket}" for bucket in f["names"]]
    bounds = [_number_name(b) for b in f["bounds"]]
    between = [f"{a}..{b}" for a, b in zip(bounds, bounds[1:], strict=False)]
    return [f"{name}={bucket}" for bucket in (f"<{bounds[0]}", *between, f">={bounds[-1]}")]


def _number_name(x: float) -> str:
    """The shortest decimal, with an exponent below 1e-5 and from 1e15 on only."""
    if x == 0:
        return "0"
    digits = np.format_float_scientific(x, trim="-") if abs(x) < 1e-5 or abs(x) >= 1e15 else np.format_float_positional(x, trim="-")
    return str(digits)
