"""The endpoints of the service, on vectors that were drawn."""

from __future__ import annotations

import pytest
from service_problems import Bench, make_bench, open_store


@pytest.fixture
def bench(tmp_path):
    with make_bench(open_store("sqlite", tmp_path)) as found:
        yield found


def test_four_things_can_happen_and_the_answer_says_which(bench: Bench):
    name = bench.person(40)
    say = bench.world.say
    found = {
        kind: bench.calls.verify(name, say(*who)[0], phrase="Open the door!").json()
        for kind, who in {"TC": (40, 0), "TW": (40, 1), "IC": (41, 0), "IW": (41, 1)}.items()
    }
    assert [found[kind]["decision"] for kind in found] == ["accept", "reject", "reject", "reject"]
    assert [found[kind]["reason"] for kind in found] == [None, "wrong_phrase", "wrong_speaker", "both"]
    for kind, answer in found.items():
        assert max(answer["posteriors"], key=answer["posteriors"].get) == kind
        assert sum(answer["posteriors"].values()) == pytest.approx(1)
        assert (answer["llrSpeaker"] > 0) == (kind[0] == "T")
        assert (answer["llrPhrase"] > 0) == (kind[1] == "C")
