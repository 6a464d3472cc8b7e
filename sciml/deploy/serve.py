"""Serving of a solution over HTTP: values at points as JSON, NumPy or Arrow, by FastAPI."""

import asyncio
import contextlib
import hmac
import io
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sciml._text import extra, listed, whole
from sciml.errors import DataError, FileError, ProblemError, SolverError
from sciml.problem.observations import derivative_named
from sciml.runs import load
from sciml.runs.directory import SOLUTION

if TYPE_CHECKING:
    from fastapi import FastAPI

    from sciml.solution import Solution

_NUMPY, _ARROW, _JSON = "application/x-npy", "application/vnd.apache.arrow.stream", "application/json"
# For how long requests are collected that are answered together, in seconds.
_TOGETHER = 0.002
# The largest number of a port.
_PORTS = 65535
_LOG = logging.getLogger("sciml.serve")


def app(solution: "Solution", *, token: str | None = None, points: int = 100_000, size: int = 2**24) -> "FastAPI":
    """A FastAPI application that answers with the values of a solution.

    ``POST /evaluate`` takes ``{"points": {"x": [...], "t": [...]}, "fields": ["u", "u_x"]}`` as JSON; as NumPy
    (``application/x-npy``) an array ``(n, D)`` in the order of the coordinates; as Arrow
    (``application/vnd.apache.arrow.stream``) a table with a column for each coordinate. The answer is of the kind that was
    sent, or that ``Accept`` names: the fields at these points, in JSON with units and estimated errors, which NumPy and Arrow
    carry as the header ``x-estimated-error``.
    ``GET /`` says what is served, ``GET /health`` that it is, ``/docs`` is the OpenAPI page. Points outside the domain are
    refused with its bounds (422). Requests that come together are evaluated together.

    Args:
        solution: what is served.
        token: if given, requests need the header ``Authorization: Bearer TOKEN``.
        points: the most points of a request.
        size: the most bytes of a request.

    Raises:
        MissingExtraError: FastAPI is not installed.
        SolverError: a limit is no whole number.

    Reference: the HTTP standard, RFC 9110; https://fastapi.tiangolo.com.
    """
    with extra("serve", "serving needs FastAPI"):
        from fastapi import FastAPI, HTTPException, Request, Response
        from fastapi.concurrency import run_in_threadpool
    most, largest = whole("points", points, 1, SolverError), whole("size", size, 1, SolverError)
    batches = _Batches(solution, run_in_threadpool)
    units, errors = solution.units, dict(solution.estimated_error)
    header = ", ".join(f"{name}={value:.2e}" for name, value in errors.items())

    @contextlib.asynccontextmanager
    async def living(_: "FastAPI") -> AsyncIterator[None]:
        worker, batches.working = asyncio.create_task(batches.work()), True
        yield
        # What was asked before is answered.
        await batches.end()
        await worker

    served = FastAPI(title=f"sciml: {solution.name}", lifespan=living, description=_described(solution))

    async def allowed(request: Request) -> None:
        given = request.headers.get("authorization", "")
        if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "a token is needed: Authorization: Bearer TOKEN")

    @served.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @served.get("/")
    async def about(request: Request) -> dict[str, Any]:
        await allowed(request)
        return {
            "problem": solution.name,
            "coordinates": {
                name: {"low": low, "high": high, "unit": units.get(name)} for name, (low, high) in solution.bounds.items()
            },
            "fields": {name: {"unit": units.get(name), "estimated_error": errors.get(name)} for name in solution.fields},
            "unknowns": solution.constants,
            "success": solution.success,
            "message": solution.message,
        }

    @served.post("/evaluate", openapi_extra=_schema(solution))
    async def evaluate(request: Request) -> Response:
        await allowed(request)
        began = time.perf_counter()
        sent = request.headers.get("content-type", _JSON).split(";")[0].strip().lower()
        if sent not in (_JSON, _NUMPY, _ARROW):
            raise HTTPException(415, f"bodies are {listed((_JSON, _NUMPY, _ARROW))}; given: {sent!r}")
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > largest:
                raise HTTPException(413, f"a request has at most {largest} bytes")
        try:
            asked, names = _asked(bytes(content), sent, solution)
        except Exception as error:
            # Parsers of foreign bytes raise errors of many kinds.
            raise HTTPException(422, f"the body cannot be read: {str(error)[:300]}") from None
        if len(asked) > most:
            raise HTTPException(413, f"a request has at most {most} points; given: {len(asked)}")
        if not np.isfinite(asked).all():
            raise HTTPException(422, "every coordinate of every point must be a finite number")
        outside = ~solution.domain.contains(asked)
        if outside.any():
            bounds = {name: list(pair) for name, pair in solution.bounds.items()}
            raise HTTPException(
                422, f"{int(outside.sum())} of {len(asked)} points lie outside the domain, whose bounds are {bounds}"
            )
        if not batches.working:
            raise HTTPException(503, "the application was not started, or has ended: run its lifespan, `with TestClient(app)`")
        values = await batches.answer(asked, names)
        wanted = request.headers.get("accept", "").split(",")[0].split(";")[0].strip().lower()
        kind = wanted if wanted in (_JSON, _NUMPY, _ARROW) else sent
        took = time.perf_counter() - began
        _LOG.info("evaluate %d points, %s, %.1f ms", len(asked), kind, 1e3 * took)
        return Response(_packed(values, kind, units, errors), media_type=kind, headers={"x-estimated-error": header})

    return served


def serve(
    path: "str | Path | Solution",
    *,
    port: int = 8000,
    host: str = "127.0.0.1",
    token: str | None = None,
    points: int = 100_000,
    problem: Any = None,
) -> None:
    """Serve a run, a saved solution or a solution until it is stopped; only files of ours are loaded, nothing is unpickled.

    Args:
        path: the directory of a run, a file that ``Solution.save`` wrote, or a solution.
        port: where to listen, from 0, which is any that is free, to 65535.
        host: the address to listen at; only this machine can reach the default.
        token, points: as for ``app``.
        problem: the problem of a solution that satisfies conditions exactly.

    Raises:
        DataError: there is no such port.
        FileError: the file is missing, damaged, or not one of ours.
        MissingExtraError: FastAPI or uvicorn are not installed.
    """
    with extra("serve", "serving needs uvicorn"):
        import uvicorn
    if whole("port", port, 0) > _PORTS:
        raise DataError(f"port must be at most {_PORTS}; given: {port}")
    solution: Any = path
    if isinstance(path, str | Path):
        file = Path(path)
        solution = load(file / SOLUTION if file.is_dir() else file, problem)
    if not solution.success:
        _LOG.warning("%s is not a success: %s", solution.name, solution.message)
    uvicorn.run(app(solution, token=token, points=points), host=host, port=port, timeout_graceful_shutdown=10)


class _Batches:
    """Requests that come within a moment, evaluated together in one thread beside the loop."""

    def __init__(self, solution: "Solution", in_thread: Any) -> None:
        self._solution, self._in_thread = solution, in_thread
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self.working = False

    async def answer(self, points: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
        found: asyncio.Future[dict[str, np.ndarray]] = asyncio.get_running_loop().create_future()
        await self._queue.put((points, tuple(names), found))
        return await found

    async def end(self) -> None:
        await self._queue.put(None)

    async def work(self) -> None:
        """Answer until the end is asked for."""
        ended = False
        while not ended:
            waiting = [await self._queue.get()]
            await asyncio.sleep(_TOGETHER if self._queue.empty() else 0)
            while not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            ended = None in waiting
            # What came together with the end is answered.
            self.working = not ended
            by_names: dict[tuple[str, ...], list[Any]] = {}
            for each in waiting:
                if each is not None:
                    by_names.setdefault(each[1], []).append(each)
            for names, several in by_names.items():
                whole_batch = np.concatenate([points for points, _, _ in several])
                try:
                    values = await self._in_thread(partial(_evaluated, self._solution, whole_batch, names))
                except Exception as error:
                    for _, _, found in several:
                        if not found.done():
                            found.set_exception(error)
                    continue
                begin = 0
                for points, _, found in several:
                    if not found.done():
                        found.set_result({name: each[begin : begin + len(points)] for name, each in values.items()})
                    begin += len(points)


def _evaluated(solution: "Solution", points: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    slopes = [name for name in names if name not in solution.fields]
    found = solution(dict(zip(solution.coordinates, points.T, strict=True)), derivatives=slopes)
    return {name: np.asarray(found[name], dtype=np.float64) for name in names}


def _asked(content: bytes, kind: str, solution: "Solution") -> tuple[np.ndarray, Sequence[str]]:
    """The points ``(n, D)`` and the names of what is wanted there."""
    names: Sequence[str] = solution.fields
    columns: Mapping[str, Any]
    if kind == _NUMPY:
        points = np.load(io.BytesIO(content), allow_pickle=False)
        if points.ndim != 2 or points.shape[1] != len(solution.coordinates) or points.dtype.kind not in "fiu":
            raise ProblemError(
                f"an array (n, {len(solution.coordinates)}) of numbers is needed, columns {listed(solution.coordinates)}; "
                f"given: {points.dtype} {points.shape}"
            )
        return points.astype(np.float64), names
    if kind == _ARROW:
        with extra("files", "Arrow needs pyarrow"):
            import pyarrow
        try:
            table = pyarrow.ipc.open_stream(content).read_all()
            columns = {name: table[name].to_numpy() for name in table.column_names if name in solution.coordinates}
        except (pyarrow.ArrowException, OSError) as error:
            raise FileError(f"no stream of Arrow: {error}") from error
    else:
        body = json.loads(content)
        if not isinstance(body, dict) or not isinstance(body.get("points"), dict):
            named = {name: [low] for name, (low, _) in solution.bounds.items()}
            raise ProblemError(f'the body is {{"points": {named}, "fields": {list(names)}}}'.replace("'", '"'))
        columns, names = body["points"], body.get("fields", list(names))
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ProblemError(f"fields is a list of names; given: {str(names)[:100]}")
    missing = [name for name in solution.coordinates if name not in columns]
    if missing:
        raise ProblemError(f"points lack the coordinate {listed(missing)}")
    for name in names:
        if name not in solution.fields and derivative_named(name, solution.fields, solution.coordinates) is None:
            raise ProblemError(f"{name[:50]!r} is neither a field nor a derivative of one; fields: {listed(solution.fields)}")
    arrays = [np.atleast_1d(np.asarray(columns[name])) for name in solution.coordinates]
    if any(each.dtype.kind not in "fiu" or each.ndim != 1 for each in arrays):
        raise ProblemError("every coordinate is a number or a list of numbers")
    return np.stack(np.broadcast_arrays(*arrays), axis=1).astype(np.float64), names


def _packed(values: Mapping[str, np.ndarray], kind: str, units: Mapping[str, str], errors: Mapping[str, float]) -> bytes:
    if kind == _NUMPY:
        buffer = io.BytesIO()
        np.save(buffer, np.stack(list(values.values()), axis=1))
        return buffer.getvalue()
    if kind == _ARROW:
        import pyarrow

        table = pyarrow.table(dict(values))
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()
    content = {name: each.tolist() for name, each in values.items()}
    return json.dumps(
        {"values": content, "units": {name: units.get(name) for name in values}, "estimated_error": errors}
    ).encode()


def _described(solution: "Solution") -> str:
    units = solution.units
    inside = ", ".join(
        f"{name} from {low:g} to {high:g} {units.get(name, '')}".strip() for name, (low, high) in solution.bounds.items()
    )
    fields = ", ".join(f"{name} [{units[name]}]" if name in units else name for name in solution.fields)
    return f"Fields {fields} over {inside}. {solution.message}. {solution.estimate}"


def _schema(solution: "Solution") -> dict[str, Any]:
    """What a request looks like, for the OpenAPI page."""
    numbers = {"type": "array", "items": {"type": "number"}}
    body = {
        "type": "object",
        "required": ["points"],
        "properties": {
            "points": {"type": "object", "properties": dict.fromkeys(solution.coordinates, numbers)},
            "fields": {"type": "array", "items": {"type": "string"}, "example": list(solution.fields)},
        },
    }
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": body}, _NUMPY: {}, _ARROW: {}}}}
