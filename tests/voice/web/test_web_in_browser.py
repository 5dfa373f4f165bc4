"""The site in a browser, on real recordings: vectors, LLRs and verdicts as in Python, offline after the first visit."""

from __future__ import annotations

import base64
import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mvplda.decisions import Decision
from mvplda.exceptions import FetchError, MvpldaError
from mvplda.scoring.question import Question
from mvplda.voice.verification import VoiceModel
from mvplda.voice.web.site import write_site

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed, which extractors need")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ROOT = Path(__file__).parents[3]
DATA = ROOT.parent / "shared" / "data"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(
        CHROMIUM is None, reason="there is no Chromium (Debian: apt-get install chromium)"
    ),
]
SCRIPTS = [
    ROOT / "src" / "mvplda" / "serve" / "page" / name
    for name in ("dom.js", "recorder.js", "worklet.js")
]
READY_MS = 180_000
MAX_MB = 70.0
MAX_LLR_DIFFERENCE = 0.05
MAX_PHRASE_DIFFERENCE = 0.8
"""The network `sounds` rounds its activations to 8 bits: noise at -140 dB alone moves an LLR of phrases by up to 0.35
in Python, and rounding in another build of onnxruntime does the same."""
POINTS = 736
"""First column of the block of `sounds`."""

ENROLLED = "cvau/c15/p01/2014-11_1.flac"
TRIALS = [
    # right phrase, other phrase, other speaker; a telephone at 8 kHz; single words
    ([ENROLLED, "cvau/c15/p01/2014-11_2.flac"], "cvau/c15/p01/2014-11_3.flac", "accept"),
    ([ENROLLED], "cvau/c15/p02/2014-11_1.flac", "reject"),
    ([ENROLLED], "cvau/c27/p01/2014-11_2.flac", "reject"),
    (["wuw/w002/onword/00201.flac"], "wuw/w020/sentence3/00310.flac", "reject"),
    (
        ["speech_commands/0132a06d/down/00.flac"],
        "speech_commands/0132a06d/down/01.flac",
        "accept",
    ),
]
FILES = sorted({file for enrolled, tested, _ in TRIALS for file in (*enrolled, tested)})


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def voices() -> VoiceModel:
    if not all((DATA / file).is_file() for file in FILES):
        pytest.skip(f"there are no recordings under {DATA}")
    try:
        return VoiceModel.load()
    except (OSError, MvpldaError) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def site(voices: VoiceModel, tmp_path_factory: pytest.TempPathFactory) -> Any:
    try:
        return write_site(tmp_path_factory.mktemp("site") / "new", voices, scripts=SCRIPTS)
    except FetchError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def place(site: Any) -> Iterator[Any]:
    """The site behind a server, and a browser before it."""
    handler = functools.partial(Handler, directory=str(site.folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(READY_MS)
        requests: list[str] = []
        problems: list[str] = []
        context.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(address)
        wait_until_ready(page)
        yield SimpleNamespace(
            page=page,
            context=context,
            address=address,
            requests=requests,
            problems=problems,
            server=server,
        )
        browser.close()
    server.shutdown()
    server.server_close()
    thread.join()


def wait_until_ready(page: Any) -> None:
    page.wait_for_selector("#enrol [name=files]:enabled", timeout=READY_MS)


@pytest.fixture(scope="module")
def recordings(place: Any, voices: VoiceModel) -> dict[str, Any]:
    """Vectors and qualities of all recordings: those of the page, and those of Python."""
    place.page.evaluate(
        "async () => { const { Verifier } = await import('./mvplda.js');"
        " globalThis.verifier = await Verifier.load(); globalThis.recordings = {}; }"
    )
    made = {}
    for file in FILES:
        data = base64.b64encode((DATA / file).read_bytes()).decode()
        vector, quality = place.page.evaluate(
            "async ([name, data]) => { const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));"
            " const made = await verifier.recording(bytes.buffer); recordings[name] = made;"
            " return [[...made.vector], made.quality]; }",
            [file, data],
        )
        expected = voices.extractor.utterance(DATA / file)
        made[file] = (np.array(vector, np.float32), quality, expected)
    return made


def test_a_site_is_small_and_complete(site: Any) -> None:
    assert site.size_mb < MAX_MB
    written = {
        file.relative_to(site.folder).as_posix()
        for file in site.folder.rglob("*")
        if file.is_file()
    }
    assert written == set(site.files)


def test_vectors_and_qualities_are_those_of_python(
    recordings: dict[str, Any], voices: VoiceModel
) -> None:
    for file, (vector, quality, expected) in recordings.items():
        for name, (start, end) in voices.extractor.blocks.items():
            one, other = vector[start:end], expected.vector[start:end]
            distance = 1 - one @ other / np.linalg.norm(one) / np.linalg.norm(other)
            assert distance < (2e-3 if start == POINTS else 1e-5), (file, name)
        assert quality["speechS"] == pytest.approx(expected.quality.speech_s, abs=0.021)
        assert quality["warnings"] == list(expected.quality.warnings)


def test_llrs_and_verdicts_are_those_of_python(
    place: Any, recordings: dict[str, Any], voices: VoiceModel
) -> None:
    clear = 0
    for enrolled, tested, verdict in TRIALS:
        sides = [[str(DATA / file) for file in side] for side in (enrolled, [tested])]
        for same in (["speaker", "phrase"], ["speaker"], ["phrase"]):
            expected = voices.verify(sides[0], sides[1], Question(same))
            got = verify(place.page, enrolled, tested, same)
            if len(same) == 2:
                assert expected.answer == verdict
            if is_clear(expected):
                clear += 1
                assert (got["verdict"], got["reason"]) == (expected.answer, expected.reason)
            for view, llr in expected.llrs.items():
                limit = MAX_PHRASE_DIFFERENCE if view == "phrase" else MAX_LLR_DIFFERENCE
                assert abs(got["llrs"][view] - llr) < limit, (enrolled, tested, view)
            if same == ["speaker"]:
                assert abs(got["llr"] - expected.llr) < MAX_LLR_DIFFERENCE
    assert clear >= 2 * len(TRIALS)


def is_clear(decision: Decision) -> bool:
    """Whether no LLR of the phrase is so close to a threshold that rounding in a network may change the verdict."""
    half, llr = decision.halves.get("phrase"), decision.llrs.get("phrase")
    if half is None or llr is None:
        return True
    return min(abs(llr - half.accept), abs(llr - half.reject)) > MAX_PHRASE_DIFFERENCE


def test_all_llrs_agree_where_one_network_does_not_round(
    place: Any, recordings: dict[str, Any], voices: VoiceModel
) -> None:
    points = {
        file: expected.vector[POINTS:].tolist() for file, (_, _, expected) in recordings.items()
    }
    place.page.evaluate(
        "([points, first]) => { for (const name in points) recordings[name].vector.set(points[name], first); }",
        [points, POINTS],
    )
    for enrolled, tested, _ in TRIALS:
        sides = [[str(DATA / file) for file in side] for side in (enrolled, [tested])]
        expected = voices.verify(sides[0], sides[1])
        got = verify(place.page, enrolled, tested, ["speaker", "phrase"])
        assert abs(got["llr"] - expected.llr) < MAX_LLR_DIFFERENCE
        for view, llr in expected.llrs.items():
            assert abs(got["llrs"][view] - llr) < MAX_LLR_DIFFERENCE, (enrolled, tested, view)


def verify(page: Any, enrolled: list[str], tested: str, same: list[str]) -> Any:
    return page.evaluate(
        "([enrolled, tested, same]) => verifier.verify(enrolled.map((name) => recordings[name]),"
        " [recordings[tested]], { same })",
        [enrolled, tested, same],
    )


def judged(page: Any, file: str) -> tuple[str, str]:
    """Verdict and reason of a file that is put into the form."""
    page.evaluate("() => { document.getElementById('result').replaceChildren(); }")
    page.set_input_files("#verify [name=files]", str(DATA / file))
    result = page.wait_for_selector("#result:has(.verdict)", timeout=READY_MS)
    wait_until_ready(page)
    return result.get_attribute("data-verdict"), result.get_attribute("data-reason")


def test_the_page_enrols_and_verifies_online_and_offline(place: Any, voices: VoiceModel) -> None:
    page = place.page
    page.fill("#enrol [name=name]", "Ann")
    files = [str(DATA / file) for file in TRIALS[0][0]]
    page.set_input_files("#enrol [name=files]", files)
    page.wait_for_selector("#profiles li", timeout=READY_MS)
    wait_until_ready(page)
    assert "Ann: 2 recordings" in page.text_content("#profiles")
    assert judged(page, TRIALS[0][1]) == ("accept", "")
    assert judged(page, TRIALS[1][1]) == ("reject", "wrong_phrase")
    assert judged(page, TRIALS[0][0][0]) == ("reject", "suspected_replay")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not there")
    found = axe.Axe().run(page)
    assert not found.response["violations"], found.generate_report()

    # the profile stays on the device, and all files: nothing else was asked for
    place.context.set_offline(True)
    place.server.shutdown()
    page.reload()
    wait_until_ready(page)
    assert "Ann: 2 recordings" in page.text_content("#profiles")
    assert judged(page, TRIALS[0][1]) == ("accept", "")
    page.click("#profiles button")
    page.wait_for_selector("#profiles:not(:has(li))", state="attached")
    assert place.problems == []
    assert all(url.startswith((place.address, "data:", "blob:")) for url in place.requests)
