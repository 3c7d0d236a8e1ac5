"""Install directories as an installer leaves them at each step, with certificates and keys that are real."""

import base64
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType

Json = dict[str, Any]
INFRA_ID: Final = "toy-x7k2p"
SECRET: Final = "pull-secret-that-nobody-may-see"


@dataclass(frozen=True)
class Directory:
    """One that grows by the installer's commands."""

    path: Path

    def install_config(self, **changes: Any) -> "Directory":
        """As before `create manifests`."""
        (self.path / "install-config.yaml").write_text(yaml.safe_dump({**config(), **changes}))
        return self

    def state(self, **assets: Any) -> "Directory":
        """Add assets to the state file; `kind_of_asset` is spelled without its asterisk."""
        path = self.path / ".openshift_install_state.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        known.update({f"*{name.replace('_', '.', 1)}": value for name, value in assets.items()})
        path.write_text(json.dumps(known))
        return self

    def metadata(self, **changes: Any) -> "Directory":
        (self.path / "metadata.json").write_text(
            json.dumps({"clusterName": "toy", "clusterID": "1", "infraID": INFRA_ID, "aws": {"region": "x"}, **changes})
        )
        return self

    def ignition(self, *files: tuple[str, bytes], made: datetime | None = None) -> "Directory":
        """As after `create ignition-configs`."""
        for name in ("bootstrap.ign", "master.ign", "worker.ign"):
            content = ignition_config(files if name == "bootstrap.ign" else ())
            (self.path / name).write_text(json.dumps(content))
            if made is not None:
                set_time(self.path / name, made)
        return self

    def machine(self, *addresses: tuple[str, str], infra_id: str = INFRA_ID) -> "Directory":
        """As while `create cluster` runs, by a Cluster API installer."""
        folder = self.path / ".clusterapi_output"
        folder.mkdir(exist_ok=True)
        listed = [{"type": kind, "address": address} for kind, address in addresses]
        content = {"kind": "Machine", "status": {"addresses": listed}}
        name = f"Machine-openshift-cluster-api-guests-{infra_id}-bootstrap.yaml"
        (folder / name).write_text(yaml.safe_dump(content))
        return self


def config() -> Json:
    return {
        "apiVersion": "v1",
        "baseDomain": "example.test",
        "metadata": {"name": "toy"},
        "networking": {
            "machineNetwork": [{"cidr": "10.0.0.0/16"}],
            "serviceNetwork": ["172.30.0.0/16"],
        },
        "platform": {"aws": {"region": "x"}},
        "pullSecret": SECRET,
    }


def ignition_config(files: tuple[tuple[str, bytes], ...]) -> Json:
    entries = [
        {"path": path, "mode": 384, "contents": {"source": f"data:;base64,{base64.b64encode(content).decode()}"}}
        for path, content in files
    ]
    return {"ignition": {"version": "3.2.0"}, "storage": {"files": entries}}


def certificate(now: datetime, lifetime: timedelta) -> bytes:
    return Authority.create("toy", now, lifetime, KeyType.ECDSA_P256).certificate_pem


def encoded(content: bytes) -> str:
    """As Go's JSON writes bytes."""
    return base64.b64encode(content).decode()


def set_time(path: Path, when: datetime) -> None:
    seconds = when.astimezone(UTC).timestamp()
    os.utime(path, (seconds, seconds))
