"""The Open Inference Protocol, as Triton's own client speaks it."""

import json
import urllib.request
from typing import Any

import pytest
from conftest import PATIENCE, Daemon, need
from streamd import Client


def test_triton(daemon: Daemon) -> None:
    np, triton, utils = need("numpy"), need("tritonclient.http"), need("tritonclient.utils")
    rows = np.array([[3, 10.1], [3, 400.5], [29, -1e3]])
    with Client(daemon.url) as client:
        while not (model := client.model()).get("calibration"):  # it follows the blocks
            client.wait(after=model["fingerprint"], timeout=PATIENCE)
    with urllib.request.urlopen(daemon.url + "/v1/predict", json.dumps(rows.tolist()).encode()) as answer:
        want = json.load(answer)
    assert want["labels"][:2] == ["ham", "spam"] and want["model"] == model["fingerprint"]

    client = triton.InferenceServerClient(daemon.url.removeprefix("http://"), network_timeout=PATIENCE)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("default")
    assert not client.is_model_ready("other")
    told = client.get_model_metadata("default")
    assert told["versions"] == [want["model"]]
    assert [tensor["name"] for tensor in told["inputs"]] == model["features"] == ["capitals", "length"]
    outputs = [tensor["name"] for tensor in told["outputs"]]
    assert outputs == ["label", "values", "probabilities"]

    def tensor(name: str, numbers: Any, binary: bool) -> Any:
        t = triton.InferInput(name, list(numbers.shape), utils.np_to_triton_dtype(numbers.dtype))
        t.set_data_from_numpy(numbers, binary_data=binary)
        return t

    for binary in (False, True):
        chosen = [triton.InferRequestedOutput(name, binary_data=binary) for name in outputs]
        columns = [tensor("length", rows[:, 1], binary), tensor("capitals", rows[:, :1].astype(np.int32), not binary)]
        for inputs in ([tensor("all", rows, binary)], columns):
            for version in ("", want["model"]):
                got = client.infer(
                    "default", inputs, model_version=version, outputs=chosen, request_id="a7", request_compression_algorithm="gzip"
                )
                response = got.get_response()
                assert (response["id"], response["model_name"], response["model_version"]) == ("a7", "default", want["model"])
                assert [text.decode() if binary else text for text in got.as_numpy("label")] == want["labels"]
                for part in ("values", "probabilities"):
                    assert got.as_numpy(part).tolist() == want[part]
    assert client.infer("default", [tensor("all", rows, True)]).as_numpy("values").tolist() == want["values"]

    with pytest.raises(utils.InferenceServerException, match=r"\[404\] version \"f0\" of the model is not served"):
        client.infer("default", columns, model_version="f0")
    with pytest.raises(utils.InferenceServerException, match=r"\[400\] parameters: unknown parameter \"priority\""):
        client.infer("default", columns, priority=1)
    with pytest.raises(utils.InferenceServerException, match=r"\[400\] .*column \"length\": the feature is missing"):
        client.infer("default", columns[1:])
    client.close()
