"""Kubeconfig files and the credentials in them."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.live_certificates import MountedSecret, replace
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer, watch_answer
from tests.support.tunnel_pki import FolderAuthority

from umbilical.cluster.client import ApiClient, make_client
from umbilical.cluster.credentials import is_loopback, load
from umbilical.fault import ApiUnreachable, ClusterError

FINE = json_answer({"ok": True})


def write_kubeconfig(path: Path, server: str, **user: str) -> Path:
    content: dict[str, Any] = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    replace(path, json.dumps(content).encode())
    return path


def tokens(api: ScriptedApi) -> list[str]:
    return [request.headers["authorization"].removeprefix("Bearer ") for request in api.requests]


def always(_request: Request) -> Answer:
    return FINE


@asynccontextmanager
async def asking(folder: Path, **user: str) -> AsyncIterator[tuple[ApiClient, ScriptedApi]]:
    """A client of an API that always answers, with these credentials in `config`."""
    config = folder / "config"
    async with ScriptedApi(always) as api, make_client(write_kubeconfig(config, api.url, **user)) as client:
        yield client, api


async def ask(client: ApiClient) -> None:
    assert await client.request("GET", "/thing") == {"ok": True}


async def test_a_new_token_is_sent_with_the_next_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with asking(tmp_path, tokenFile=str(token)) as (client, api):
        await ask(client)
        replace(token, b"second\n")
        await ask(client)
        await ask(client)
        assert tokens(api) == ["first", "second", "second"], "none was refused in between"


async def test_a_token_that_the_kubelet_mounts_changes_by_a_link(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).write_text(name)
    mounted = MountedSecret(tmp_path / "serviceaccount")
    mounted.publish(token=tmp_path / "first")
    async with asking(tmp_path, tokenFile=str(mounted.folder / "token")) as (client, api):
        await ask(client)
        mounted.publish(token=tmp_path / "second")
        await ask(client)
        assert tokens(api) == ["first", "second"]


async def test_a_kubeconfig_that_is_replaced_counts_from_the_next_request(tmp_path: Path) -> None:
    async with ScriptedApi(always) as old, ScriptedApi(always) as new:
        config = write_kubeconfig(tmp_path / "config", old.url, token="first")
        async with make_client(config) as client:
            await ask(client)
            write_kubeconfig(config, new.url, token="second")
            await ask(client)
            assert (tokens(old), tokens(new)) == (["first"], ["second"])


@pytest.mark.parametrize("harm", ["gone", "empty", "binary"])
async def test_a_token_of_no_use_leaves_the_one_before(
    tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "umbilical.cluster.credentials")
    token = tmp_path / "token"
    token.write_text("first")
    async with asking(tmp_path, tokenFile=str(token)) as (client, api):
        await ask(client)
        if harm == "gone":
            token.unlink()
        else:
            replace(token, {"empty": b"\n", "binary": b"\xff\xfe"}[harm])
        await ask(client)
        await ask(client)
        replace(token, b"second")
        await ask(client)
        assert tokens(api) == ["first", "first", "first", "second"]
    warning, success = caplog.records
    assert warning.levelno == logging.WARNING
    assert warning.getMessage().startswith(f"UMB601 could not load the credentials of {tmp_path / 'config'}: ")
    assert str(tmp_path / "token") in warning.getMessage()
    assert success.levelno == logging.INFO
    assert "first" not in caplog.text
    assert "second" not in caplog.text


async def test_a_broken_kubeconfig_leaves_the_one_from_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with asking(tmp_path, token="first") as (client, api):
        replace(tmp_path / "config", b"{ half")
        await ask(client)
        await ask(client)
        assert tokens(api) == ["first", "first"]
    (warning,) = caplog.records
    assert warning.getMessage().endswith("the previous credentials stay in use")


async def test_certificate_and_key_that_do_not_fit_wait_for_each_other(tmp_path: Path) -> None:
    authority = FolderAuthority(tmp_path)
    first, second = authority.client("first"), authority.client("second")
    async with ScriptedApi(always) as api:
        certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
        replace(certificate, first.certificate.read_bytes())
        replace(key, first.key.read_bytes())
        names = {"client-certificate": certificate.name, "client-key": key.name}
        config = write_kubeconfig(tmp_path / "config", api.url, **names)
        async with make_client(config) as client:
            replace(certificate, second.certificate.read_bytes())
            await ask(client)
            replace(key, second.key.read_bytes())
            await ask(client)
            assert len(api.requests) == 2


async def test_a_watch_goes_on_with_what_it_began_with(tmp_path: Path) -> None:
    event = {"type": "ADDED", "object": {"kind": "Lease"}}

    def answer(request: Request) -> Answer:
        return watch_answer(event, stays_open=True) if request.path == "/watched" else FINE

    token = tmp_path / "token"
    token.write_text("first")
    async with ScriptedApi(answer) as api:
        config = write_kubeconfig(tmp_path / "config", api.url, tokenFile=str(token))
        async with make_client(config) as client, client.watch("/watched", {}) as events:
            assert await anext(events) == event
            replace(token, b"second")
            await ask(client)
            with pytest.raises(TimeoutError):  # nothing comes, and no end either
                await asyncio.wait_for(anext(events), 0.2)
            await ask(client)
            assert tokens(api) == ["first", "second", "second"]


def test_nothing_to_begin_with_is_an_error_at_once(tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", tokenFile=str(tmp_path / "gone"))
    with pytest.raises(ClusterError, match="UMB601"):
        make_client(config)


async def test_a_token_that_goes_between_look_and_request_is_no_crash(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    config = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", tokenFile=str(token))
    async with make_client(config) as client:
        token.unlink()
        token.mkdir()  # reading it fails in another way than a file that is not there
        with pytest.raises(ApiUnreachable):
            await client.request("GET", "/thing")


GOOD = """
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def _fault(path: Path | None) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        load(path)
    return caught.value


def _write(folder: Path, content: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(content)
    return path


def test_the_current_context_is_taken_also_without_a_user(tmp_path: Path) -> None:
    config = load(_write(tmp_path, GOOD))
    assert config.cluster.server == "https://10.0.0.1:6443"
    assert config.user is not None
    assert config.user.token == "t"
    assert load(_write(tmp_path, GOOD.replace(", user: u", ""))).user is not None


def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path) -> None:
    for content, why in (
        ("]", "while parsing"),
        ("", "NoneType"),
        ("{}", "clusters"),
        (GOOD.replace("current-context: x", ""), "No current context"),
        (GOOD.replace("current-context: x", "current-context: y"), "Context 'y' not found"),
        (GOOD.replace("cluster: c,", "cluster: d,"), "'d'"),
        (GOOD.replace("token: t", "token: 7"), "Expected `str"),
    ):
        fault = _fault(_write(tmp_path, content))
        assert fault.code == "UMB601"
        assert str(tmp_path) in fault.what
        assert why in fault.why


def test_what_is_needed_is_named_where_there_is_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not found" in _fault(tmp_path / "absent").why
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    fault = _fault(None)
    assert fault.code == "UMB602"
    assert "--kubeconfig" in fault.remedy
    monkeypatch.setitem(sys.modules, "lightkube", None)
    fault = _fault(None)
    assert fault.code == "UMB605"
    assert "umbilical[k8s]" in fault.remedy


def test_only_this_machine_is_loopback() -> None:
    for server, expected in (
        *(("https://127.0.0.1:6443", True), ("https://127.8.8.8", True), ("https://[::1]:6443", True)),
        *(("https://localhost:6443", True), ("https://10.0.0.1:6443", False), ("https://api.example", False)),
    ):
        assert is_loopback(server) is expected
