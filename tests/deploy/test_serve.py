"""A solution behind HTTP: what is answered, what is refused, and that nothing brings it down."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow
import pytest

import sciml
from sciml.deploy import app, serve
from sciml.errors import DataError, FileError

httpx = pytest.importorskip("httpx")


@pytest.fixture(scope="module")
def heat():
    return sciml.fit(sciml.gallery.problem("heat_rod"))


@pytest.fixture(scope="module")
def client(heat):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient

        with TestClient(app(heat, points=1000, size=2**16), raise_server_exceptions=True) as client:
            yield client


def test_an_application_that_was_not_started_says_so(heat):
    """A request waited for ever."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient

        served = app(heat)
        body = {"points": {"x": 0.5, "t": 0.2}}
        found = TestClient(served).post("/evaluate", json=body)
        assert (found.status_code, "was not started" in found.text) == (503, True)
        with TestClient(served) as client:
            assert client.post("/evaluate", json=body).status_code == 200
        assert TestClient(served).post("/evaluate", json=body).status_code == 503


def test_values_and_derivatives_as_json_numpy_and_arrow(client, heat):
    x, t = np.linspace(0.1, 0.9, 5), np.full(5, 0.2)
    expected = heat(x=x, t=t, derivatives=["u_x"])
    body = {"points": {"x": x.tolist(), "t": 0.2}, "fields": ["u", "u_x"]}
    found = client.post("/evaluate", json=body)
    assert found.status_code == 200
    assert found.json()["values"]["u_x"] == expected["u_x"].tolist()
    assert found.json()["estimated_error"] == dict(heat.estimated_error)
    buffer = io.BytesIO()
    np.save(buffer, np.stack([x, t], axis=1))
    found = client.post("/evaluate", content=buffer.getvalue(), headers={"content-type": "application/x-npy"})
    assert np.load(io.BytesIO(found.content))[:, 0] == pytest.approx(expected["u"], abs=0)
    assert found.headers["x-estimated-error"].startswith("u=")
    sink = pyarrow.BufferOutputStream()
    table = pyarrow.table({"t": t, "x": x, "station": [str(each) for each in x]})
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    kind = {"content-type": "application/vnd.apache.arrow.stream"}
    found = client.post("/evaluate", content=sink.getvalue().to_pybytes(), headers=kind)
    assert pyarrow.ipc.open_stream(found.content).read_all()["u"].to_numpy() == pytest.approx(expected["u"], abs=0)


def test_what_is_served_is_described(client):
    about = client.get("/").json()
    assert about["coordinates"]["x"] == {"low": 0.0, "high": 1.0, "unit": None}
    assert about["success"] is True
    assert client.get("/health").json() == {"status": "ok"}
    assert "u over x from 0 to 1" in client.get("/openapi.json").json()["info"]["description"]


@pytest.mark.parametrize(
    ("content", "kind", "status", "words"),
    [
        (
            b'{"points": {"x": [0.5], "t": [9.0]}}',
            "application/json",
            422,
            "1 of 1 points lie outside the domain, whose bounds",
        ),
        (b'{"points": {"x": [0.5]}}', "application/json", 422, "lack the coordinate 't'"),
        (b'{"points": {"x": [0.5], "t": ["a"]}}', "application/json", 422, "a list of numbers"),
        (b'{"points": {"x": [0.5, 0.6], "t": [0.1, 0.2, 0.3]}}', "application/json", 422, "cannot be read"),
        (b'{"points": {"x": [NaN], "t": [0.1]}}', "application/json", 422, "finite"),
        (b'{"points": {"x": [0.5], "t": [0.1]}, "fields": ["v"]}', "application/json", 422, "neither a field"),
        (b"[" * 60000, "application/json", 422, "cannot be read"),
        (b"0" * 70000, "application/json", 413, "65536 bytes"),
        (json.dumps({"points": {"x": [0.5] * 1001, "t": 0.1}}).encode(), "application/json", 413, "at most 1000 points"),
        (b"\x93NUMPY\x01\x00", "application/x-npy", 422, "cannot be read"),
        (b"cos\nsystem\n(S'true'\ntR.", "application/x-npy", 422, "cannot be read"),
        (b"junk", "application/vnd.apache.arrow.stream", 422, "Arrow"),
        (b"<xml/>", "text/xml", 415, "bodies are"),
    ],
)
def test_what_is_wrong_is_told(client, content, kind, status, words):
    found = client.post("/evaluate", content=content, headers={"content-type": kind})
    assert (found.status_code, words in found.json()["detail"]) == (status, True), found.text


def test_malformed_bodies_never_crash_it(client):
    """Random bytes, and requests with bytes changed."""
    random = np.random.default_rng(0)
    good = b'{"points": {"x": [0.5, 0.25], "t": [0.1, 0.2]}, "fields": ["u"]}'
    kinds = ("application/json", "application/x-npy", "application/vnd.apache.arrow.stream")
    buffer = io.BytesIO()
    np.save(buffer, np.full((2, 2), 0.5))
    for number in range(1000):
        begun = np.frombuffer((good, buffer.getvalue())[number % 2], dtype=np.uint8).copy()
        begun[random.integers(len(begun), size=3)] = random.integers(256, size=3)
        content = begun.tobytes() if number % 3 else random.bytes(int(random.integers(200)))
        found = client.post("/evaluate", content=content, headers={"content-type": kinds[number % 3]})
        assert found.status_code in (200, 413, 422), found.text
    assert client.get("/health").status_code == 200


def test_a_token_is_asked_for(heat):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient

        with TestClient(app(heat, token="secret")) as guarded:
            body = {"points": {"x": [0.5], "t": [0.1]}}
            assert guarded.post("/evaluate", json=body).status_code == 401
            assert guarded.post("/evaluate", json=body, headers={"authorization": "Bearer secret"}).status_code == 200
            assert guarded.get("/health").status_code == 200


def test_damaged_files_are_not_served(tmp_path):
    (tmp_path / "solution.pt").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(FileError):
        sciml.deploy.serve(tmp_path / "solution.pt")


@pytest.mark.slow
@pytest.mark.parametrize("port", [-1, 99999, 8000.5])
def test_there_are_as_many_ports_as_there_are(heat, port):
    with pytest.raises(DataError, match="port must be"):
        serve(heat, port=port)


def test_many_clients_at_once_and_a_graceful_end(heat, tmp_path):
    """A real server: sixteen clients get their own answers, and SIGTERM ends it with what was asked answered."""
    heat.save(tmp_path / "heat.pt")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sciml", "serve", str(tmp_path / "heat.pt"), "--port", str(port)]
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL) as server:
        at = f"http://127.0.0.1:{port}"
        server_ended = threading.Timer(60, server.kill)
        server_ended.start()
        for _ in range(300):
            try:
                if httpx.get(f"{at}/health").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)

        def ask(number):
            x = (np.arange(20) + number) / 40
            with httpx.Client() as own:
                for _ in range(10):
                    found = own.post(f"{at}/evaluate", json={"points": {"x": x.tolist(), "t": 0.1}}).json()
            return np.abs(np.array(found["values"]["u"]) - heat(x=x, t=0.1)["u"]).max()

        with ThreadPoolExecutor(16) as pool:
            assert max(pool.map(ask, range(16))) < 1e-14
        server.send_signal(signal.SIGTERM)
        server_ended.cancel()
        assert server.wait(20) in (0, -signal.SIGTERM)
