"""
Enrol and verify over HTTP
==========================

``mvplda serve`` stores profiles, and decides whether a recording is of the right person
*and* of the right phrase. Here it runs with a model of simulated vectors, and verifies one
test of each kind. With sound in place of vectors, the calls are the same.
"""

import atexit
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from mvplda import MultiviewPLDA, make_two_views

folder = Path(tempfile.mkdtemp())
X, labels, unseen = make_two_views(80, 6, 5, 250, (20, 5), held_out=4, random_state=1)
words = np.array(
    [
        "open the door",
        "close the door",
        "my voice is my key",
        "good morning",
        "seven apples",
        "let me in",
    ]
)
model = MultiviewPLDA({"speaker": 20, "phrase": 5})
model.fit(X, {"speaker": labels["speaker"], "phrase": words[labels["phrase"]]}).save(
    folder / "model.safetensors"
)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = [
    sys.executable,
    "-m",
    "mvplda",
    "serve",
    "--port",
    str(port),
    "--data",
    str(folder),
    "--model",
]
server = subprocess.Popen(
    [*command, str(folder / "model.safetensors")], stderr=subprocess.DEVNULL
)
atexit.register(server.terminate)


def post(path, **body):
    """Send JSON to a path of the service and return the JSON of its answer."""
    address = f"http://127.0.0.1:{port}/v1/{path}"
    request = urllib.request.Request(
        address, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


for _ in range(1200):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/ready").close()
        break
    except OSError:  # the service is not ready yet
        time.sleep(0.1)

# %%
# A person agrees to the enrolment, and is enrolled with three vectors of one phrase.

vectors = {
    (who, what): unseen.enrol[18 * who + 3 * what :][:3]
    for who in range(4)
    for what in range(6)
}
tests = {
    (who, what): unseen.test[12 * who + 2 * what]
    for who in range(4)
    for what in range(6)
}
consent = {"given": True, "text": "I agree"}
profile = post("profiles", userId="ann", phrase=words[0], consent=consent)["profileId"]
for vector in vectors[0, 0]:
    enrolled = post(
        f"profiles/{profile}/enrollments", vector=vector.tolist(), phrase=words[0]
    )
print(enrolled["state"], enrolled["enrollmentsCount"])

# %%
# Four tests: Ann with her phrase, Ann with another, somebody else with the phrase,
# somebody else with another.

visits = {
    "Ann, her phrase": (0, 0),
    "Ann, another": (0, 3),
    "Bob, her phrase": (1, 0),
    "Bob, another": (1, 3),
}
found = {}
for name, visit in visits.items():
    body = {"vector": tests[visit].tolist(), "phrase": words[0], "far": 0.05}
    found[name] = post(f"profiles/{profile}/verify", **body)
    print(f"{name:16} {found[name]['decision']:12} {found[name]['reason']}")
server.terminate()
server.wait()

fig, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
start = np.zeros(4)
for kind, colour in {
    "TC": "#0072B2",
    "TW": "#E69F00",
    "IC": "#D55E00",
    "IW": "#BBBBBB",
}.items():
    shares = np.array([answer["posteriors"][kind] for answer in found.values()])
    axes.barh(list(found), shares, left=start, color=colour, label=kind)
    start += shares
for i, answer in enumerate(found.values()):
    axes.text(1.02, i, f"{answer['decision']}, LLR {answer['llr']:+.1f}", va="center")
axes.invert_yaxis()
axes.set(xlim=(0, 1), xlabel="probability of each hypothesis")
axes.legend(ncols=4, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
plt.show()
