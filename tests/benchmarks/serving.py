"""A solution behind HTTP on the loopback: points a second, latency at sixteen clients, malformed bodies.

``python -m tests.benchmarks.serving``; traffic goes to this machine alone, is bounded, and ends with the server.
"""

import io
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np

import sciml

PORT, POINTS, CLIENTS, EACH, MALFORMED = 8899, 50_000, 16, 50, 10_000
KINDS = ("application/json", "application/x-npy", "application/vnd.apache.arrow.stream")


def median(function):
    """The median seconds of nine calls, after one."""
    function()
    seconds = []
    for _ in range(9):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def main():
    """Print one line for each measurement."""
    solution = sciml.fit(sciml.gallery.problem("burgers"))
    at, random = f"http://127.0.0.1:{PORT}", np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        file = solution.save(Path(folder) / "burgers.pt")
        command = [sys.executable, "-m", "sciml", "serve", str(file), "--port", str(PORT)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
            try:
                for _ in range(300):
                    try:
                        httpx.get(f"{at}/health")
                        break
                    except httpx.TransportError:
                        time.sleep(0.1)
                points = np.stack([random.uniform(-1, 1, POINTS), random.uniform(0, 1, POINTS)], axis=1)
                buffer = io.BytesIO()
                np.save(buffer, points)
                with httpx.Client(timeout=60) as client:

                    def asked():
                        head = {"content-type": KINDS[1]}
                        client.post(f"{at}/evaluate", content=buffer.getvalue(), headers=head).raise_for_status()

                    called = POINTS / median(lambda: solution(x=points[:, 0], t=points[:, 1]))
                    rate = POINTS / median(asked)
                    print(f"points a second: library {called:.3g}, server {rate:.3g} (NumPy, {POINTS} a request)")

                def ask(number):
                    seconds = []
                    with httpx.Client(timeout=60) as own:
                        for _ in range(EACH):
                            began = time.perf_counter()
                            body = {"points": {"x": [0.1 * (number % 9)] * 10, "t": 0.5}}
                            own.post(f"{at}/evaluate", json=body).raise_for_status()
                            seconds.append(time.perf_counter() - began)
                    return seconds

                with ThreadPoolExecutor(CLIENTS) as pool:
                    every = 1e3 * np.concatenate(list(pool.map(ask, range(CLIENTS))))
                told = f"median {np.median(every):.1f} ms, p99 {np.quantile(every, 0.99):.1f} ms"
                print(f"{CLIENTS} clients: {told}, {len(every)} requests")
                with httpx.Client(timeout=60) as client:
                    wrong = 0
                    for number in range(MALFORMED):
                        content, head = random.bytes(int(random.integers(300))), {"content-type": KINDS[number % 3]}
                        wrong += client.post(f"{at}/evaluate", content=content, headers=head).status_code not in (413, 422)
                    health = client.get(f"{at}/health").json()
                    print(f"{MALFORMED} malformed bodies: {wrong} answered otherwise than by 413 and 422, {health}")
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
