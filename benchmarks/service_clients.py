"""Test of a client that a common generator makes from /openapi.json, on a running service.

``python benchmarks/service_clients.py --generator FOLDER/bin/openapi-python-client``. The generator and the client run
in an environment of their own (``pip install openapi-python-client``); the service is one of drawn vectors.
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support")]

import httpx
from service_problems import make_world, running_server

SMOKE = """
import json, sys
from generated import Client
from generated.api.default import create_profile, delete_profile, enrol, get_profile, ready, verify
from generated.models import Consent, EnrolJsonEnrolRequest, NewProfile, ProblemDetails, VerifyJsonVerifyRequest

client = Client(base_url=sys.argv[1])
vectors = json.load(open(sys.argv[2]))
assert ready.sync(client=client).status == "ready"
new = NewProfile(user_id="ann", phrase="open the door", consent=Consent(given=True))
ann = create_profile.sync(client=client, body=new)
for vector in vectors[:3]:
    added = enrol.sync(ann.profile_id, client=client, body=EnrolJsonEnrolRequest(vector=vector))
assert added.state == "enrolled", added
decided = verify.sync(ann.profile_id, client=client, body=VerifyJsonVerifyRequest(vector=vectors[3]))
assert decided.decision == "accept", decided
assert get_profile.sync(ann.profile_id, client=client).enrollments_count == 3
assert delete_profile.sync(ann.profile_id, client=client).state == "deleted"
gone = get_profile.sync(ann.profile_id, client=client)
assert isinstance(gone, ProblemDetails) and gone.status == 410, gone
print("a generated client enrolled, verified and deleted")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generator", type=Path, required=True)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with running_server(folder) as server:
            made = folder / "client"
            url = f"{server.url}/openapi.json"
            (folder / "openapi.json").write_text(httpx.get(url).text, encoding="utf-8")
            words = ["generate", "--path", str(folder / "openapi.json"), "--meta", "none"]
            words += ["--output-path", str(made / "generated")]
            subprocess.run([str(chosen.generator), *words], check=True)
            vectors = folder / "vectors.json"
            vectors.write_text(json.dumps(make_world().say(40, 0, 4).tolist()), encoding="utf-8")
            (made / "smoke.py").write_text(SMOKE, encoding="utf-8")
            python = chosen.generator.with_name("python")
            subprocess.run([python, "smoke.py", server.url, vectors], cwd=made, check=True)


if __name__ == "__main__":
    main()
