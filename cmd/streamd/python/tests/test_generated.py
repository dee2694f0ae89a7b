"""Clients that public generators make of the daemon's own description, against a real daemon.

Each call of the description is made. One that has no call here fails a test.
"""

import datetime
import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import PATIENCE, Daemon, customer, need
from streamd import Local

HERE = pathlib.Path(__file__).resolve().parent
METHODS = ("get", "post", "put", "delete", "patch")


@pytest.fixture(scope="module")
def kernel() -> Iterator[Daemon]:
    """A daemon that has an answer to nearly every call: its model has a basis and is refined."""
    need("confluent_kafka")
    settings = {
        "blocks.unit": "key", "kernel.function": "gaussian", "kernel.rows": 500, "kernel.basis": 8, "kernel.on_retire": "keep",
        "model.refine": "line",
    }  # fmt: skip
    with Local("customers", settings) as local:
        it = Daemon(local)
        it.push(**{name: customer(seed) for seed, name in enumerate(("lee", "max", "mia", "ned", "c1", "c2", "c3", "c4"))})
        while not all((model := local.model()).get(part) for part in ("basis", "refinement", "calibration")):
            local.wait(after=model["fingerprint"], timeout=PATIENCE)
        yield it


@pytest.fixture(scope="module")
def document(kernel: Daemon, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("document") / "openapi.json"
    with urllib.request.urlopen(kernel.url + "/v1/openapi.json") as answer:
        file.write_bytes(answer.read())
    return file


def need_npm(*packages: str) -> pathlib.Path:
    """The folder of the packages of npm that are installed for all."""
    folder = pathlib.Path()
    if npm := shutil.which("npm"):
        folder = pathlib.Path(subprocess.run([npm, "root", "-g"], capture_output=True, text=True, check=True).stdout.strip())
    missing = [name for name in packages if not (npm and (folder / name).is_dir())]
    if missing and os.environ.get("STREAMD_REQUIRE_PROGRAMS"):
        raise AssertionError(f"STREAMD_REQUIRE_PROGRAMS is set, and npm -g has no {missing}")
    if missing:
        pytest.skip(f"npm -g has no {missing}")
    return folder


def operations(document: pathlib.Path) -> dict[tuple[str, str], str]:
    """The id of each operation by its method and path."""
    paths = json.loads(document.read_bytes())["paths"]
    return {(m.upper(), path): item[m]["operationId"] for path, item in paths.items() for m in METHODS if m in item}


def test_python(kernel: Daemon, document: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("openapi_python_client")
    (config := tmp_path / "config.json").write_text('{"post_hooks": []}')  # they format the code
    made = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", "--path", document, "--config", config,
         "--meta", "none", "--output-path", tmp_path / "generated"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout
    # It has no words for these types of bodies. The calls are made without them.
    assert sorted(re.findall(r"[Uu]nsupported content.type ([^)\n]+)", made.stdout)) == [
        "application/vnd.apache.arrow.stream", "application/x-libsvm", "application/x-ndjson", "image/svg+xml", "text/csv",
    ]  # fmt: skip
    assert made.stdout.count("WARNING") == 5 and "ERROR" not in made.stdout, made.stdout

    monkeypatch.syspath_prepend(str(tmp_path))
    m, types = importlib.import_module("generated.models"), importlib.import_module("generated.types")
    modules = {path.stem: path.parent.name for path in (tmp_path / "generated/api").glob("*/*.py") if path.stem != "__init__"}
    ids = operations(document)
    assert {re.sub("(?=[A-Z])", "_", name).lower() for name in ids.values()} == set(modules)
    called = set()
    with importlib.import_module("generated").Client(base_url=kernel.url, timeout=PATIENCE) as client:

        def call(name: str, status: int, of: type, /, **arguments: Any) -> Any:
            called.add(name)
            module = importlib.import_module(f"generated.api.{modules[name]}.{name}")
            answer = module.sync_detailed(client=client, **arguments)
            assert (answer.status_code, type(answer.parsed)) == (status, of), f"{name}: {answer.content[:500]!r}"
            return answer.parsed

        nothing = type(None)
        model = call("get_model", 200, m.ModelAnswer)
        assert (model.classes, len(model.planes[0].w)) == (["ham", "spam"], len(model.basis.points))
        call("get_model", 304, nothing, if_none_match=f'W/"{model.fingerprint}"')
        call("get_model", 504, m.ErrorAnswer, includes="customers/0/1000000")
        error = call("get_model", 404, m.ErrorAnswer, to=datetime.datetime(1990, 1, 1, tzinfo=datetime.UTC))
        assert error.error.code == m.ErrorDetailCode.NOT_FOUND and error.error.message

        rows = [m.Row.from_dict(row) for row in ({"length": 10, "capitals": 3}, {"length": 400.5, "capitals": 3})]
        columns = call("predict", 200, m.PredictAnswer, body=rows)
        assert columns.labels == ["ham", "spam"] and columns.model == model.fingerprint
        by_row = call("predict", 200, m.PredictRowsAnswer, body=rows, form=m.PredictForm.ROWS)
        assert [row.label for row in by_row.rows] == columns.labels
        assert by_row.rows[1].values["spam"] == columns.values[1][0]
        assert call("predict", 200, m.PredictAnswer, body=[m.Row.from_dict({"features": [3, 400.5]})]).values == columns.values[1:]
        call("predict", 400, m.ErrorAnswer, body=[m.Row.from_dict({"length": "long"})])
        call("predict", 409, m.ErrorAnswer, body=rows[:1], id="a7")

        assert call("get_tuning", 404, m.ErrorAnswer).error.code == m.ErrorDetailCode.NOT_FOUND
        call("get_quality", 200, m.Quality)
        call("get_prequential", 200, m.Prequential)
        assert call("get_history", 200, m.History, span=m.GetHistorySpan.HOURS).seconds > 0
        call("get_windows", 200, m.Steps, step="1d")
        call("compare_windows", 200, m.Comparison, a="2020-01-01T00:00:00Z,")
        assert "event: " in call("get_events", 200, str, follow=False)
        call("get_label_requests", 200, m.LabelRequestsAnswer, count=2)
        assert call("get_regions", 200, nothing) is None  # the picture is in the answer's content
        call("get_regions", 304, nothing, if_none_match="*")

        assert call("get_epoch", 200, m.EpochAnswer).in_use
        call("reduce_basis", 202, m.EpochAnswer)
        call("abandon_reduction", 200, m.EpochAnswer)
        call("refine_model", 200, m.RefineAnswer)
        call("learn_lists", 409, m.ErrorAnswer)  # the schema has none to learn

        page = call("list_blocks", 200, m.BlocksAnswer, limit=2)
        assert len(page.blocks) == 2 and page.next_
        assert call("retire_blocks", 200, m.Retirement, body=m.Selector(keys=["lee", "max"]), dry_run=True).blocks == 2
        gone = call("retire_blocks", 200, m.Retirement, body=m.Selector(keys=["lee"]))
        assert gone.rows == 100
        call("retire_blocks", 404, m.ErrorAnswer, body=m.Selector(to=datetime.datetime(1990, 1, 1, tzinfo=datetime.UTC)))
        assert call("retire_block", 200, m.Retirement, id="key:max").blocks == 1
        call("get_model", 200, m.ModelAnswer, receipts=gone.receipts[0] + 1, wait="1m")

        assert "c2sp.org/tlog-proof" in call("get_receipt_proof", 200, str, leaf=str(gone.receipts[0]))
        assert call("get_receipt_checkpoint", 200, str)
        size = gone.receipts[0] + 2
        assert len(call("get_receipt_tile", 200, types.File, tile=f"0/000.p/{size}").payload.read()) == 32 * size
        call("get_receipt_tile", 404, m.ErrorAnswer, tile="0/x000/000.p/1")

        assert call("save_snapshot", 200, m.SnapshotInfo, compact=True).bytes_ > 0
        assert len(call("copy_snapshot", 200, types.File, receipts=False).payload.read()) > 10_000

        call("get_status", 200, m.StatusAnswer)
        call("mark_problems_seen", 200, m.StatusAnswer, until=datetime.datetime.now(datetime.UTC))
        assert call("get_health", 200, m.Health).status == "ok"
        call("get_readiness", 200, m.Health)
        assert "streamd_rows" in call("get_metrics", 200, str)
        assert call("get_document", 200, m.GetDocumentResponse200)["openapi"] == "3.1.0"
        assert "<html" in call("get_page", 200, str, view=m.GetPageView.BLOCKS)
        assert "{" in call("get_asset", 200, str, name="page.css")

        name = "default"
        assert call("get_server_metadata", 200, m.ServerMetadata).name == "streamd"
        assert call("get_server_live", 200, m.ServerHealth).live
        assert call("get_server_ready", 200, m.ServerHealth).ready
        told = call("get_model_metadata", 200, m.ModelMetadata, name=name)
        assert [tensor.name for tensor in told.inputs] == ["capitals", "length"]
        assert call("get_model_ready", 200, m.ModelHealth, name=name).ready
        request = m.InferRequest(inputs=[m.InferInput(name="all", shape=[2, 2], datatype="FP64", data=[[3, 10], [3, 400.5]])])
        inferred = call("infer", 200, m.InferAnswer, name=name, body=request)
        assert [out.name for out in inferred.outputs] == ["label", "values", "probabilities"]
        assert inferred.outputs[0].data == ["ham", "spam"]
        version = {"name": name, "version": inferred.model_version}
        call("get_model_version_metadata", 200, m.ModelMetadata, **version)
        call("get_model_version_ready", 200, m.ModelHealth, **version)
        request.outputs = [m.InferOutput(name="label")]
        assert len(call("infer_version", 200, m.InferAnswer, **version, body=request).outputs) == 1
        assert "f0" in call("infer_version", 404, m.InferError, name=name, version="f0", body=request).error
    assert called == set(modules)


def test_typescript(kernel: Daemon, document: pathlib.Path, tmp_path: pathlib.Path) -> None:
    modules = need_npm("openapi-typescript", "openapi-fetch", "typescript")
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    options = {"strict": True, "noUncheckedIndexedAccess": True, "target": "es2022", "module": "nodenext"}
    options |= {"types": [], "skipLibCheck": True}
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["generated.ts"]}))
    shutil.copy(HERE / "generated.ts", tmp_path)

    def run(*command: str | pathlib.Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout
        return done.stdout

    run("node", modules / "openapi-typescript/bin/cli.js", document, "-o", "api.d.ts")
    run("node", modules / "typescript/bin/tsc", "-p", ".")
    called = {tuple(line.split()) for line in run("node", "generated.js", kernel.url).splitlines()}
    assert called == set(operations(document))
