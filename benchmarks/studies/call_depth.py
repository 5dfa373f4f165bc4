"""Files and functions of mvplda that one call passes through: ``python -m benchmarks.studies.call_depth``.

Counts are those of a second call on new objects, when all modules are imported. Functions are counted once, however
often they run; lambdas and comprehensions are not counted. HTTP verify requires the extra ``serve`` and httpx.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import numpy as np

import mvplda
from mvplda import Bundle, MultiviewPLDA, load, make_two_views

PACKAGE = str(Path(mvplda.__file__).parent)
MIN_RECORDING_VECTORS = 3


@dataclass
class CallTrace:
    """Files and functions that were entered while the trace was active.

    functions : (file, qualified name)
    depth : largest number of functions of mvplda on the stack at once
    calls : number of function calls
    """

    functions: set[tuple[str, str]] = field(default_factory=set)
    depth: int = 0
    calls: int = 0
    is_active: bool = False

    @property
    def files(self) -> set[str]:
        """Files of the entered functions."""
        return {file for file, _ in self.functions}

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """Record a call; a function for `sys.setprofile`."""
        if event != "call" or not self.is_active or not _is_counted(frame):
            return
        self.calls += 1
        self.functions.add((frame.f_code.co_filename, frame.f_code.co_qualname))
        depth, caller = 0, cast(FrameType | None, frame)
        while caller is not None:
            depth += _is_counted(caller)
            caller = caller.f_back
        self.depth = max(self.depth, depth)


def _is_counted(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code.co_name[0] != "<"


@contextmanager
def tracing(trace: CallTrace) -> Iterator[None]:
    """Trace this thread and all threads that start inside the block."""
    threading.setprofile(trace.profile)
    sys.setprofile(trace.profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def prepare_fit() -> Callable[[], object]:
    """Return a fit of two views to an array."""
    X, labels = make_two_views(20, 5, 4, 16, (4, 3), random_state=0)
    return lambda: MultiviewPLDA({"speaker": 4, "phrase": 3}).fit(X, labels)


def prepare_llr() -> Callable[[], object]:
    """Return the scoring of a matrix of profiles and tests by a fitted model."""
    X, labels, unseen = make_two_views(20, 5, 5, 16, (4, 3), held_out=4, random_state=0)
    model = MultiviewPLDA({"speaker": 4, "phrase": 3}).fit(X, labels)
    profiles = model.enrol(unseen.enrol, unseen.ids)
    return lambda: model.llr(profiles, unseen.test)


def default_bundle() -> Bundle:
    """Return the default model without its extractors."""
    from mvplda.voice.default_model import DEFAULT_MODEL

    return cast(Bundle, load(DEFAULT_MODEL))


def recording_vectors(bundle: Bundle) -> np.ndarray:
    """Return random vectors in place of those of recordings."""
    size = (MIN_RECORDING_VECTORS + 1, bundle.width_in)
    return np.abs(np.random.default_rng(0).normal(size=size)).astype(np.float32)


def prepare_verify() -> Callable[[], object]:
    """Return a decision of the default model about extracted vectors."""
    from mvplda.voice.extractors.extractor import ExtractedVectors
    from mvplda.voice.verification import VoiceModel

    bundle = default_bundle()
    extractor: Any = SimpleNamespace(name=bundle.extractor, dimension=bundle.width_in)
    voices = VoiceModel(bundle, extractor)
    enrolled, tested = (
        ExtractedVectors(X, list(range(len(X))), [], [])
        for X in np.split(recording_vectors(bundle), [MIN_RECORDING_VECTORS])
    )
    return lambda: voices.verify(enrolled, tested)


def prepare_http_verify(folder: Path) -> Callable[[], object]:
    """Return a request to the service, within this process, to verify a vector."""
    import asyncio

    import httpx

    from mvplda.serve.app import create_app, open_master, open_store
    from mvplda.serve.model import Model
    from mvplda.serve.service import Service
    from mvplda.serve.settings import Settings

    bundle = default_bundle()
    settings = Settings(data=folder, least_llr=-1e6, lock_after=1000)
    service = Service(open_store(settings), open_master(settings, True), Model(bundle), settings)
    transport = httpx.ASGITransport(create_app(service, is_open=True))

    def post(path: str, **body: object) -> Any:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await client.post(path, json=body)

        response = asyncio.run(send())
        response.raise_for_status()
        return response.json()

    profile = post("/v1/profiles", userId="ann", phrase="hello", consent={"given": True})
    *enrolled, tested = recording_vectors(bundle).tolist()
    for vector in enrolled:
        post(f"/v1/profiles/{profile['profileId']}/enrollments", vector=vector)
    return lambda: post(f"/v1/profiles/{profile['profileId']}/verify", vector=tested)


def trace_call(prepare: Callable[[], Callable[[], object]]) -> CallTrace:
    """Return the trace of a prepared call, after a first call that imports all modules."""
    prepare()()
    trace = CallTrace()
    with tracing(trace):
        call = prepare()
        trace.is_active = True
        call()
        trace.is_active = False
    return trace


def table(traces: dict[str, CallTrace]) -> str:
    """Return one row per call as Markdown."""
    lines = ["| call | files | functions | largest depth | calls |", "|:---|---:|---:|---:|---:|"]
    lines += [
        f"| {name} | {len(t.files)} | {len(t.functions)} | {t.depth} | {t.calls} |"
        for name, t in traces.items()
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the table; with ``--list``, also the functions of each call."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        folders = (Path(folder) / str(i) for i in range(2))
        calls: dict[str, Callable[[], Callable[[], object]]] = {
            "fit": prepare_fit,
            "llr": prepare_llr,
            "verify": prepare_verify,
            "HTTP verify": lambda: prepare_http_verify(next(folders)),
        }
        traces = {name: trace_call(prepare) for name, prepare in calls.items()}
    print(table(traces))
    if "--list" in sys.argv:
        for name, trace in traces.items():
            print(f"\n{name}")
            for file, function in sorted(trace.functions):
                print(f"  {Path(file).relative_to(PACKAGE)}  {function}")


if __name__ == "__main__":
    main()
