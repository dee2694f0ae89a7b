"""A model elsewhere: ONNX, SQL, C, MLflow and numpy say what the program says."""

import ctypes
import itertools
import json
import pathlib
import pickle
import shutil
import sqlite3
import subprocess
from typing import Any

import pytest
from conftest import Daemon, customer, need

np = need("numpy")
pd = need("pandas")
pa = need("pyarrow")
onnx = need("onnx")
onnxruntime = need("onnxruntime")
duckdb = need("duckdb")
sqlglot = need("sqlglot")
need("sklearn")

from streamd import Classifier, Client, find_program

NEAR = 1e-9
ROWS = 10_000
SCHEMA = """
age:       {kind: number, missing: mean}
income:    {kind: number, log1p: true, clip: [0, 10000000], missing: 0}
score:     {kind: number, missing: indicator}
size:      number
member:    bool
active:    {kind: bool, from: is active, "true": [yes], "false": [no], missing: zero}
country:   {kind: category, values: [at, ch, "d'e"], other: true, missing: own}
plan:      {kind: category, values: [a, b]}
age band:  {kind: buckets, from: age, bounds: [999998, 1000000, 1000003], missing: own}
size band: {kind: buckets, from: size, bounds: [1000000], names: [small, large]}
vector:    {kind: list, length: 2, missing: 3.5}
country by member: {kind: interaction, of: [country, member]}
size by plan: {kind: interaction, of: [size, plan]}
id:        ignore
"""


def program(*args: Any, stdin: bytes | None = None) -> bytes:
    done = subprocess.run([find_program(), *map(str, args)], input=stdin, capture_output=True, env={})
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def numbers(n: int, classes: int, seed: int, missing: bool) -> Any:
    """Rows of six numbers about a million."""
    r = np.random.default_rng(seed)
    y = r.integers(0, classes, n)
    centres = np.random.default_rng(0).normal(size=(classes, 6)) * 4
    x = 1e6 + centres[y] + r.normal(size=(n, 6)) * [1, 2, 3, 1, 2, 3]
    frame = pd.DataFrame(x, columns=["x1", "x2", "x3", 'a "quoted" name', "ünïcode, with 'quotes'", "label"])
    if missing:
        frame = frame.mask(r.random(frame.shape) < 0.05)
    return frame, np.array([f"class '{c}'" if c else 'the "first"\\\n?' for c in range(classes)])[y]


def people(n: int, classes: int, seed: int, missing: bool) -> Any:
    """Rows for SCHEMA."""
    r = np.random.default_rng(seed)
    y = r.integers(0, classes, n)
    of = np.random.default_rng(0).normal(size=(classes, 3)) * 4
    age, size, score = (1e6 + of[y] + r.normal(size=(n, 3)) * 2).T
    countries = np.array(["at", "ch", "d'e", "fr", None if missing else "it"], object)
    frame = pd.DataFrame({
        "age": age, "income": np.exp(r.normal(10, 3, n)) - 0.5, "score": score, "size": size,
        "member": r.integers(0, 2, n).astype(float), "is active": r.choice(["yes", "no"], n).astype(object),
        "country": countries[(y + r.integers(0, 3, n)) % 5], "plan": r.choice(["a", "b"], n).astype(object),
        "vector[0]": r.normal(size=n), "vector[1]": r.normal(size=n),
    })  # fmt: skip
    if missing:
        for name in ("age", "income", "score", "is active", "vector[0]"):
            frame[name] = frame[name].mask(r.random(n) < 0.1)
        frame.loc[:9, "income"] = np.inf  # which the schema clips
    return frame, np.array([f"k{c}" for c in range(classes)])[y]


class Model:
    """A model that `streamd fit` has learned, and what the program says of rows."""

    def __init__(self, folder: pathlib.Path, make: Any, classes: int, missing: bool, flags: list[str]) -> None:
        self.folder = folder
        frame, y = make(1500, classes, 1, missing)
        if make is people:
            schema = SCHEMA
            if "--kernel" in flags:  # which has no means, and to which 0 is far from a million
                schema = schema.replace("missing: mean", "missing: 1000000").replace("missing: indicator", "missing: 1000000")
            (folder / "schema.yaml").write_text(schema)
            flags = [*flags, "--schema", folder / "schema.yaml"]
        self._arrow(frame.assign(**{"the label": y}), folder / "train.arrow")
        out = program("fit", folder / "train.arrow", "--label", "the label", "--json", *flags)
        self.file = folder / "model.json"
        self.file.write_bytes(out.splitlines()[-1])
        self.report = json.loads(self.file.read_bytes())
        self.frame, y = make(ROWS, classes, 2, missing)
        self._arrow(self.frame, folder / "rows.arrow")
        by_value = folder / "value.json"
        by_value.write_text(json.dumps(self.report | {"calibration": None, "decision": {"rule": "value"}}))
        answer = self.predicted(self.file)
        self.labels = answer["label"].to_numpy(zero_copy_only=False)
        assert (self.labels == y).mean() > 1.5 / classes  # it has learned something
        planes = [plane["class"] for plane in self.report["planes"]]
        raw = self.predicted(by_value)
        self.values = np.column_stack([raw[f"value_{c}"] for c in planes])
        self.probable = f"probability_{planes[0]}" in answer.column_names
        if self.probable:
            self.probabilities = np.column_stack([answer[f"probability_{c}"] for c in self.report["classes"]])

    @staticmethod
    def _arrow(frame: Any, path: pathlib.Path) -> None:
        table = pa.Table.from_pandas(frame, preserve_index=False)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)

    def predicted(self, model: pathlib.Path) -> Any:
        out = program("predict", self.folder / "rows.arrow", "--model", model, "--label", "the label", "--output", "arrow")
        return pa.ipc.open_stream(out).read_all()

    def export(self, *flags: Any) -> str:
        return program("export", self.file, *flags).decode()

    def agrees(self, labels: Any, values: Any, probabilities: Any) -> None:
        differ = (np.asarray(labels) != self.labels).sum()
        off = np.abs(np.asarray(values) - self.values).max()
        print(f"{differ} labels differ, values by {off:.1e}", end="")
        assert differ == 0
        assert off <= NEAR
        if self.probable:
            off = np.abs(np.asarray(probabilities) - self.probabilities).max()
            print(f", probabilities by {off:.1e}", end="")
            assert off <= NEAR
        else:
            assert probabilities is None
        print()


CASES = {
    "two classes, curves": (numbers, 2, True, ["--missing", "mean", "--calibration", "isotonic"]),
    "two classes, plain": (numbers, 2, False, ["--plain"]),
    "two classes, costs": (numbers, 2, True, ["--missing", "mean", "--calibration", "platt", "--decision", "cost", "--costs", "class '1'>the \"first\"\\\n?=3"]),
    "twenty classes": (numbers, 20, True, ["--missing", "mean", "--standardise", "--nu", "1", "--folds", "5"]),
    "twenty classes, kernel": (people, 20, True, ["--kernel", "gaussian", "--standardise", "--basis", "50", "--nu", "10", "--folds", "5"]),
    "eight classes, curves": (people, 8, True, ["--standardise", "--nu", "1", "--folds", "5", "--calibration", "isotonic"]),
    "twelve classes, softmax": (people, 12, True, ["--standardise", "--nu", "1", "--folds", "5", "--calibration", "softmax"]),
    "six classes, Platt": (people, 6, True, ["--standardise", "--nu", "1", "--folds", "5", "--calibration", "platt"]),
    "four classes, costs": (people, 4, False, ["--standardise", "--nu", "1", "--folds", "5", "--calibration", "platt", "--decision", "cost", "--costs", "k1>k2=5,k0>k3=0.2"]),
    "kernel and a projection": (numbers, 3, False, ["--kernel", "gaussian", "--reduce", "eigen", "--sample", "40", "--basis", "8", "--nu", "10", "--folds", "5"]),
    "polynomial": (numbers, 3, False, ["--kernel", "polynomial", "--standardise", "--basis", "12", "--nu", "10", "--folds", "5"]),
    "sigmoid": (numbers, 3, False, ["--kernel", "sigmoid", "--standardise", "--basis", "12", "--nu", "10", "--folds", "5"]),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    make, classes, missing, flags = CASES[request.param]
    return Model(tmp_path_factory.mktemp("export"), make, classes, missing, flags)


def feeds(session: Any, frame: Any) -> dict[str, Any]:
    if [i.name for i in session.get_inputs()] == ["X"]:
        columns = json.loads(session.get_modelmeta().custom_metadata_map["columns"])
        return {"X": frame[columns].to_numpy()}
    return {i.name: texts(frame[[i.name]]) if i.type == "tensor(string)" else frame[[i.name]].to_numpy() for i in session.get_inputs()}


def texts(frame: Any) -> Any:
    return frame.where(frame.notna(), "").to_numpy(object)


def for_sqlite(statement: str) -> str:
    """A statement in SQLite's words. sqlglot takes seconds for a long one."""
    if len(statement) < 50_000:
        return sqlglot.transpile(statement, read="duckdb", write="sqlite")[0]
    return statement.replace("GREATEST(", "MAX(").replace("LEAST(", "MIN(")


def test_onnx(model: Model) -> None:
    file = model.folder / "model.onnx"
    model.export("--onnx", file)
    graph = onnx.load(file)
    onnx.checker.check_model(graph, full_check=True)
    assert [(o.domain, o.version) for o in graph.opset_import] == [("", 17)]
    assert {node.domain for node in graph.graph.node} == {""}
    print(f"{len(graph.graph.node)} nodes, ", end="")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    answer = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds(session, model.frame)), strict=True))
    model.agrees(answer["label"], answer["values"], answer.get("probabilities"))


def test_sql(model: Model) -> None:
    order = "the order"
    frame = model.frame.assign(**{order: range(ROWS)})
    statement = model.export("--sql", "--table", "rows", "--keep", order)
    planes, classes = [p["class"] for p in model.report["planes"]], model.report["classes"]
    print(f"{len(statement)} bytes, ", end="")

    def check(answer: Any) -> None:
        answer = answer.sort_values(order)
        probabilities = answer[[f"probability_{c}" for c in classes]] if model.probable else None
        model.agrees(answer["label"], answer[[f"value_{c}" for c in planes]], probabilities)

    with duckdb.connect() as duck:
        duck.register("rows", pa.Table.from_pandas(frame, preserve_index=False))
        check(duck.sql(statement).df())
    with sqlite3.connect(":memory:") as lite:
        frame.to_sql("rows", lite, index=False)
        check(pd.read_sql_query(for_sqlite(statement), lite))


def compiled(source: pathlib.Path) -> Any:
    """The library of a file of C, and a function that reads a list of its names."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no compiler of C")
    library = source.with_suffix(".so")
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]
    subprocess.run([compiler, *strict, "-shared", "-fPIC", "-o", library, source, "-lm"], check=True)
    c = ctypes.CDLL(str(library))

    def names(of: str) -> list[str]:
        every = ((ctypes.c_char_p * (i + 1)).in_dll(c, of)[i] for i in itertools.count())
        return [name.decode() for name in itertools.takewhile(lambda name: name is not None, every)]

    return c, names


def test_c(model: Model) -> None:
    model.export("--c", model.folder / "model.c")
    c, names = compiled(model.folder / "model.c")
    number_names, text_names, classes = names("streamd_numbers"), names("streamd_texts"), names("streamd_classes")
    assert classes == model.report["classes"]
    assert names("streamd_planes") == [p["class"] for p in model.report["planes"]]
    x = np.ascontiguousarray(model.frame[number_names].to_numpy(np.float64))
    words = [[None if pd.isna(v) else v.encode() for v in row] for row in model.frame[text_names].to_numpy(object)]
    values, probabilities = np.full(model.values.shape, np.nan), np.full((ROWS, len(classes)), np.nan)
    labels = []
    for i in range(ROWS):
        row = (ctypes.c_char_p * len(text_names))(*words[i])
        at = [ctypes.c_void_p(a[i].ctypes.data) for a in (x, values, probabilities)]
        labels.append(c.streamd_predict(at[0], row, at[1], at[2]))
    assert min(labels) >= 0
    model.agrees(np.array(classes)[labels], values, probabilities if model.probable else None)


def test_classifier(model: Model) -> None:
    file = model.folder / "sklearn.json"
    model.export("--sklearn", file)
    it = Classifier.load(file)
    values = it._exported.values(it._exported.rows(model.frame))
    probabilities = it.predict_proba(model.frame) if model.probable else None
    model.agrees(it.predict(model.frame), values, probabilities)
    assert hasattr(it, "predict_proba") == model.probable
    answer = model.predicted(model.file)
    shown = it.decision_function(model.frame)
    said = np.column_stack([answer[f"value_{p['class']}"] for p in model.report["planes"]]).reshape(shown.shape)
    # Log odds have few digits near certainty.
    assert np.allclose(shown, said, rtol=1e-9, atol=1e-9) or model.report["decision"]["rule"] == "probability"
    assert np.abs(np.tanh(shown / 2) - np.tanh(said / 2)).max() < NEAR
    some = model.frame.iloc[:50]
    assert (it.predict(some[it.feature_names_in_].to_numpy()) == model.labels[:50]).all()
    assert (it.predict(some.to_dict("records")) == model.labels[:50]).all()


def test_numpy_by_hand(tmp_path: pathlib.Path) -> None:
    make, classes, missing, flags = CASES["twenty classes"]
    model = Model(tmp_path, make, classes, missing, flags)
    report = model.report
    x = model.frame[report["features"]].to_numpy()
    x = np.where(np.isnan(x), [m["mean"] for m in report["missing"]], x)
    values = x @ np.array([p["w"] for p in report["planes"]]).T - [p["gamma"] for p in report["planes"]]
    e = np.exp(values * report["calibration"]["planes"][0]["scale"])
    p = e / e.sum(1, keepdims=True)
    model.agrees(np.array(report["classes"])[p.argmax(1)], values, p)


@pytest.mark.parametrize("classes", [2, 3])
def test_sql_expression(classes: int, tmp_path: pathlib.Path) -> None:
    model = Model(tmp_path, numbers, classes, True, ["--plain", "--standardise", "--missing", "mean"])
    statement = f"SELECT {model.export('--sql')} AS label FROM rows"
    with duckdb.connect() as duck:
        duck.register("rows", pa.Table.from_pandas(model.frame, preserve_index=False))
        assert (duck.sql(statement).df()["label"] == model.labels).all()
    with sqlite3.connect(":memory:") as lite:
        model.frame.to_sql("rows", lite, index=False)
        assert (pd.read_sql_query(for_sqlite(statement), lite)["label"] == model.labels).all()


def test_a_fitted_classifier_is_loaded(tmp_path: pathlib.Path) -> None:
    frame, y = numbers(900, 3, 1, True)
    codes = np.unique(y, return_inverse=True)[1]
    fitted = Classifier(missing="mean", nu=1.0, folds=5).fit(frame, codes)
    (tmp_path / "model.json").write_bytes(fitted.model_)
    loaded = Classifier.load(tmp_path / "model.json", classes=fitted.classes_)
    assert loaded.predict(frame).tolist() == fitted.predict(frame).tolist()
    assert np.abs(loaded.predict_proba(frame) - fitted.predict_proba(frame)).max() < NEAR
    assert loaded.score(frame, codes) == fitted.score(frame, codes) > 0.8
    assert pickle.loads(pickle.dumps(loaded)).predict(frame[:3]).tolist() == fitted.predict(frame[:3]).tolist()
    with pytest.raises(ValueError, match="plain=True"):
        loaded.partial_fit(frame, codes)
    again = loaded.set_params(missing="zero").fit(frame, codes)  # by the program, and no longer by the file
    assert json.loads(again.model_)["missing"][0]["policy"] == "zero"
    with pytest.raises(ValueError, match="has no classes"):
        (tmp_path / "other.json").write_text('{"features": ["x"]}')
        Classifier.load(tmp_path / "other.json")


@pytest.mark.filterwarnings("ignore")
def test_mlflow(tmp_path: pathlib.Path) -> None:
    mlflow = need("mlflow.pyfunc")
    for case in ("six classes, Platt", "two classes, plain"):
        folder = tmp_path / case
        folder.mkdir()
        model = Model(folder, *CASES[case])
        model.export("--mlflow", folder / "model")
        loaded = mlflow.load_model(str(folder / "model"))
        assert loaded.metadata.get_model_info().flavors["onnx"]
        assert set(loaded.metadata.signature.inputs.input_names()) <= set(model.frame.columns)
        frame = model.frame.copy()
        for name, kind in frame.dtypes.items():
            if not pd.api.types.is_numeric_dtype(kind):
                frame[name] = frame[name].astype(object).where(frame[name].notna(), "").astype(object)
        answer = loaded.predict(frame)
        assert list(answer) == loaded.metadata.signature.outputs.input_names()
        probabilities = answer[[f"probability_{c}" for c in model.report["classes"]]] if model.probable else None
        label = "label_" if "label" in frame else "label"  # a column of the rows has the name
        model.agrees(answer[label], answer[[f"value_{p['class']}" for p in model.report["planes"]]], probabilities)


REFUSED = [
    {"plan": "none of them"}, {"plan": None}, {"size": float("nan")}, {"is active": "perhaps"}, {"member": 0.5}, {"size": float("inf")},
]  # fmt: skip


@pytest.mark.parametrize("flags", [["--standardise"], ["--standardise", "--kernel", "gaussian", "--basis", "8"]])
def test_rows_that_the_program_refuses_have_no_label(flags: list[str], tmp_path: pathlib.Path) -> None:
    model = Model(tmp_path, people, 4, True, ["--nu", "1", "--folds", "5", *flags])
    frame = pd.concat([model.frame.iloc[: len(REFUSED)].reset_index(drop=True), model.frame.iloc[:3]], ignore_index=True)
    for i, change in enumerate(REFUSED):
        for name, value in change.items():
            frame.loc[i, name] = value
        Model._arrow(frame.iloc[i : i + 1], tmp_path / "bad.arrow")
        done = subprocess.run([find_program(), "predict", tmp_path / "bad.arrow", "--model", model.file], capture_output=True, env={})
        assert done.returncode == 1, change
    good, bad = model.labels[:3].tolist(), len(REFUSED)
    model.export("--onnx", tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    labels, values, probabilities = session.run(None, feeds(session, frame))
    assert labels.tolist() == [""] * bad + good
    assert np.isnan(values).all(1).tolist() == np.isnan(probabilities).all(1).tolist() == [True] * bad + [False] * 3
    statement = model.export("--sql", "--table", "rows")
    with duckdb.connect() as duck:
        duck.register("rows", pa.Table.from_pandas(frame, preserve_index=False))
        answer = duck.sql(statement).fetchall()
    with sqlite3.connect(":memory:") as lite:
        frame.to_sql("rows", lite, index=False)
        for rows in (answer, lite.execute(for_sqlite(statement)).fetchall()):
            assert [row[0] for row in rows] == [None] * bad + good
            assert [all(x is None for x in row) for row in rows] == [True] * bad + [False] * 3
    it = Classifier.load(model.file)
    for i in range(bad):
        with pytest.raises(ValueError, match="row 0"):
            it.predict(frame.iloc[i : i + 1])


def test_from_a_daemon_and_of_a_window(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    rows = [{k: float(v) for k, v in row.items() if k != "label"} for row in customer(77, ROWS)]
    for flags in ([], ["--positions", "customers/0/0-5"]):
        program("export", "--url", daemon.url, *flags, "--onnx", tmp_path / "m.onnx", "--sklearn", tmp_path / "m.json")
        it = Classifier.load(tmp_path / "m.json")
        session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
        x = np.array([[row[name] for name in it.feature_names_in_] for row in rows])
        answers = session.run(None, {"X": x})
        if not flags:
            with Client(daemon.url) as client:
                said = client.predict(rows)
            assert [row["label"] for row in said] == answers[0].tolist()
            if len(answers) > 2:
                assert np.abs(answers[2] - [[row["probabilities"][c] for c in it.classes_] for row in said]).max() < NEAR
        assert it.predict(x).tolist() == answers[0].tolist()
        assert set(answers[0]) == {"ham", "spam"}


HOSTILE = ['"; DROP TABLE rows; --', "'||(SELECT 1)||'", "*/ #error\n", "a\\", "\\\nx", "??/", "%s%n{0}", "é\u202e\U0001f600", "\t \r\n", "label", "values", "X", "streamd_1_1", "streamd_1"]


def test_hostile_names(tmp_path: pathlib.Path) -> None:
    names, classes = HOSTILE, HOSTILE[:7]
    r = np.random.default_rng(5)
    model = {
        "features": names, "classes": classes, "decision": {"rule": "value"},
        "planes": [{"class": name, "w": r.normal(size=len(names)).tolist(), "gamma": r.normal()} for name in classes],
    }  # fmt: skip
    file = tmp_path / "model.json"
    file.write_text(json.dumps(model))
    x = r.normal(size=(50, len(names)))
    frame = pd.DataFrame(x, columns=names)
    want = [names[i] for i in (x @ np.array([p["w"] for p in model["planes"]]).T - [p["gamma"] for p in model["planes"]]).argmax(1)]
    assert len(set(want)) > 4
    program("export", file, "--onnx", tmp_path / "m.onnx", "--c", tmp_path / "m.c", "--sklearn", tmp_path / "m.json")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert session.run(None, feeds(session, frame))[0].tolist() == want
    assert Classifier.load(tmp_path / "m.json").predict(frame).tolist() == want
    c, listed = compiled(tmp_path / "m.c")
    assert listed("streamd_numbers") == names
    assert listed("streamd_classes") == classes
    got = [c.streamd_predict(np.ascontiguousarray(row).ctypes.data_as(ctypes.c_void_p), None, None, None) for row in x]
    assert [names[i] for i in got] == want
    table = 'a "table" of\'s'
    statement = program("export", file, "--sql", "--table", table).decode()
    expression = f"SELECT {program('export', file, '--sql').decode()} FROM rows"
    with duckdb.connect() as duck:
        for name in (table, "rows"):
            duck.register(name, pa.Table.from_pandas(frame, preserve_index=False))
        assert [row[0] for row in duck.sql(statement).fetchall()] == want
        assert [row[0] for row in duck.sql(expression).fetchall()] == want
    with sqlite3.connect(":memory:") as lite:
        frame.to_sql(table, lite, index=False)
        assert [row[0] for row in lite.execute(for_sqlite(statement)).fetchall()] == want
        assert lite.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
