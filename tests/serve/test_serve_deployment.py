"""What ``deploy/`` ships agrees with the service: names of settings, paths of checks, time to stop, minimal rights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from mvplda.serve.api_keys import API_KEYS_VARIABLE
from mvplda.serve.keys import MASTER, NEW_MASTER
from mvplda.serve.routes import router
from mvplda.serve.settings import Settings

yaml: Any = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
NAMES = {f"MVPLDA_{name.upper()}" for name in Settings.model_fields}
NAMES |= {MASTER, NEW_MASTER, API_KEYS_VARIABLE, "FORWARDED_ALLOW_IPS"}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((KUBERNETES / name).read_text()))


def pods() -> list[dict[str, Any]]:
    """Descriptions of all pods."""
    found = [*documents("mvplda.yaml"), *documents("rotate.yaml")]
    return [each["spec"]["template"]["spec"] for each in found if "template" in each["spec"]]


def test_settings_of_all_files_exist():
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    names = {
        name for pod in pods() for entry in pod["containers"][0]["env"] for name in [entry["name"]]
    }
    for service in ("service", "scrub"):
        names |= set(compose["services"][service]["environment"])
    assert names <= NAMES


def test_pods_have_no_rights_that_they_do_not_need():
    assert len(pods()) == 2
    for pod in pods():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert (
            f"USER {pod['securityContext']['runAsUser']}"
            in (ROOT / "deploy" / "Containerfile").read_text()
        )
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        volumes = {volume["name"] for volume in pod["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(mounts) == volumes
        # everything that is written has a volume
        assert {"/tmp", "/var/lib/mvplda/data"} <= set(mounts.values())


def test_a_pod_stops_after_its_calls_and_its_checks_exist():
    deployment, *_ = documents("mvplda.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    paths = {route.path for route in router.routes}
    for check in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[check]["httpGet"]["path"] in paths
    # a process that waits for its database is alive
    assert container["livenessProbe"]["httpGet"]["path"] == "/v1/health"
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    # 20 s for calls that have begun
    assert pod["terminationGracePeriodSeconds"] >= pause + 20 + 5


def test_the_bill_of_materials_names_packages_and_weights(tmp_path):
    weights = tmp_path / "weights" / "small"
    weights.mkdir(parents=True)
    (weights / "a.onnx").write_bytes(b"weights")
    target = tmp_path / "bill.json"
    command = [sys.executable, str(ROOT / "tools" / "sbom.py"), "-o", str(target)]
    subprocess.run([*command, "--extractors", str(tmp_path / "weights")], check=True)
    bill = json.loads(target.read_text())
    components = {component["name"].lower(): component for component in bill["components"]}
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    numpy = components["numpy"]
    assert numpy["purl"] == f"pkg:pypi/numpy@{numpy['version']}"
    assert numpy["licenses"]
    (digest,) = components["small/a.onnx"]["hashes"]
    assert digest["alg"] == "SHA-256"
    assert len(digest["content"]) == 64
    references = [component["bom-ref"] for component in bill["components"]]
    assert len(references) == len(set(references))
