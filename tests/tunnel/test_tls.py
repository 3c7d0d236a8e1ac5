import ssl
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from tests.support.data_plane import Reader, tls_pair, turn_until
from tests.support.tunnel_pki import FolderAuthority, TunnelPki

from umbilical.fault import StartupError
from umbilical.tunnel.loop import Loop
from umbilical.tunnel.settings import TlsFiles, TlsPolicy
from umbilical.tunnel.tls import agent_context, listener_context, noticing_truncation
from umbilical.tunnel.tls_channel import TlsChannel

POLICY = TlsPolicy()


def server_files(pki: TunnelPki) -> TlsFiles:
    return TlsFiles(pki.server.certificate, pki.server.key, pki.authority.certificate_file)


def agent_files(pki: TunnelPki) -> TlsFiles:
    return TlsFiles(pki.agent.certificate, pki.agent.key, pki.authority.certificate_file)


def shaken(plane: Loop, listener: ssl.SSLContext, dialler: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """What both ends hold after a handshake: the server's, the client's."""
    server, client = tls_pair(plane, listener, dialler)
    turn_until(plane, lambda: server.opened and client.opened)
    return tls_of(server), tls_of(client)


def tls_of(end: Reader) -> ssl.SSLObject:
    assert isinstance(end.channel, TlsChannel)
    return end.channel.tls


def server_refuses(plane: Loop, listener: ssl.SSLContext, dialler: ssl.SSLContext) -> str:
    server, _ = tls_pair(plane, listener, dialler)
    turn_until(plane, server.is_over)
    assert not server.opened
    return server.lost[0]


def test_a_listener_with_an_authority_wants_a_client_certificate(plane: Loop, tunnel_pki: TunnelPki) -> None:
    listener = listener_context(server_files(tunnel_pki), POLICY, "h2", "agent")
    server, client = shaken(plane, listener, agent_context(agent_files(tunnel_pki), ()))
    certificate = server.getpeercert()
    assert certificate is not None
    assert certificate["subject"] == ((("commonName", "proxy-agent"),),)
    assert (server.selected_alpn_protocol(), client.selected_alpn_protocol()) == ("h2", "h2")
    bare = agent_context(TlsFiles(authority=tunnel_pki.authority.certificate_file), ())
    assert server_refuses(plane, listener, bare) == "TLS: peer did not return a certificate"


def test_a_listener_without_an_authority_asks_for_none(plane: Loop, tunnel_pki: TunnelPki) -> None:
    files = TlsFiles(tunnel_pki.server.certificate, tunnel_pki.server.key)
    listener = listener_context(files, POLICY, "h2", "agent")
    server, _ = shaken(plane, listener, agent_context(agent_files(tunnel_pki), ()))
    assert not server.getpeercert()


def test_a_listener_refuses_a_certificate_that_is_for_servers(plane: Loop, tunnel_pki: TunnelPki) -> None:
    listener = listener_context(server_files(tunnel_pki), POLICY, "h2", "agent")
    assert "purpose" in server_refuses(plane, listener, agent_context(server_files(tunnel_pki), ()))


def test_a_listener_speaks_its_own_protocol_only(plane: Loop, tunnel_pki: TunnelPki) -> None:
    listener = listener_context(server_files(tunnel_pki), POLICY, "http/1.1", "frontend")
    _, client = shaken(plane, listener, tunnel_pki.authority.client_context(tunnel_pki.client, ["http/1.1"]))
    assert client.selected_alpn_protocol() == "http/1.1"
    _, client = shaken(plane, listener, tunnel_pki.authority.client_context(tunnel_pki.client))
    assert client.selected_alpn_protocol() is None


def test_a_minimum_of_tls_1_3_refuses_older_clients(plane: Loop, tunnel_pki: TunnelPki) -> None:
    listener = listener_context(server_files(tunnel_pki), TlsPolicy("VersionTLS13"), "h2", "agent")
    dialler = agent_context(agent_files(tunnel_pki), ())
    assert shaken(plane, listener, dialler)[0].version() == "TLSv1.3"
    dialler.maximum_version = ssl.TLSVersion.TLSv1_2
    assert server_refuses(plane, listener, dialler) == "TLS: unsupported protocol"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize(
    ("policy", "version"),
    [
        (TlsPolicy(), ssl.TLSVersion.TLSv1_2),
        (TlsPolicy("VersionTLS10"), ssl.TLSVersion.TLSv1),
        (TlsPolicy("VersionTLS11"), ssl.TLSVersion.TLSv1_1),
    ],
)
def test_versions_older_than_tls_1_2_must_be_named(
    tunnel_pki: TunnelPki, policy: TlsPolicy, version: ssl.TLSVersion
) -> None:
    assert listener_context(server_files(tunnel_pki), policy, "h2", "agent").minimum_version is version


def test_cipher_suites_by_their_go_names_bind_tls_1_2(plane: Loop, tunnel_pki: TunnelPki) -> None:
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256")
    listener = listener_context(server_files(tunnel_pki), TlsPolicy("VersionTLS12", suites), "h2", "agent")
    dialler = agent_context(agent_files(tunnel_pki), ())
    dialler.maximum_version = ssl.TLSVersion.TLSv1_2
    cipher = shaken(plane, listener, dialler)[0].cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    dialler.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    assert server_refuses(plane, listener, dialler) == "TLS: no shared cipher"


def test_suites_of_tls_1_3_alone_change_nothing(plane: Loop, tunnel_pki: TunnelPki) -> None:
    policy = TlsPolicy("VersionTLS12", ("TLS_AES_128_GCM_SHA256",))
    listener = listener_context(server_files(tunnel_pki), policy, "h2", "agent")
    dialler = agent_context(agent_files(tunnel_pki), ())
    dialler.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shaken(plane, listener, dialler)[0].version() == "TLSv1.2"


def test_an_agent_offers_its_own_protocols_before_h2(plane: Loop, tunnel_pki: TunnelPki) -> None:
    listener = listener_context(server_files(tunnel_pki), POLICY, "h2", "agent")
    _, client = shaken(plane, listener, agent_context(agent_files(tunnel_pki), ("konnectivity",)))
    assert client.selected_alpn_protocol() == "h2"
    picky = listener_context(server_files(tunnel_pki), POLICY, "konnectivity", "agent")
    _, client = shaken(plane, picky, agent_context(agent_files(tunnel_pki), ("konnectivity",)))
    assert client.selected_alpn_protocol() == "konnectivity"


def test_an_agent_verifies_authority_and_name_and_nothing_older_than_tls_1_2(tunnel_pki: TunnelPki) -> None:
    context = agent_context(agent_files(tunnel_pki), ())
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert len(context.get_ca_certs()) == 1


def refusal(files: TlsFiles, *, of_agent: bool = False) -> StartupError:
    load = partial(agent_context, files, ()) if of_agent else partial(listener_context, files, POLICY, "h2", "agent")
    with pytest.raises(StartupError) as caught:
        load()
    error = caught.value
    assert error.what
    assert error.why
    assert error.remedy
    assert "PRIVATE KEY" not in str(error)
    return error


def test_files_that_cannot_be_used_are_refused_with_what_is_wrong(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    pair, gone, garbage = tunnel_pki.server, tmp_path / "gone.crt", tmp_path / "garbage.pem"
    garbage.write_text("not PEM at all\n")
    absent, mismatch = f"open {gone}: no such file or directory", "key values mismatch"
    authority, ours = tunnel_pki.authority.certificate_file, "cannot load the agent "
    for files, code, what, why in (
        (TlsFiles(gone, pair.key), "UMB022", f"{ours}key pair", absent),
        (TlsFiles(pair.certificate, gone), "UMB022", f"{ours}key pair", absent),
        (TlsFiles(tmp_path, pair.key), "UMB022", f"{ours}key pair", f"open {tmp_path}: is a directory"),
        (TlsFiles(), "UMB022", f"{ours}key pair", "open : no such file or directory"),
        (TlsFiles(pair.certificate, pair.key, gone), "UMB022", f"{ours}CA certificate", absent),
        (TlsFiles(pair.certificate, tunnel_pki.agent.key), "UMB020", str(pair.certificate), mismatch),
        (TlsFiles(garbage, pair.key), "UMB020", str(garbage), ""),
        (TlsFiles(pair.certificate, garbage), "UMB020", str(garbage), ""),
    ):
        error = refusal(files)
        assert error.code == code
        assert what in error.what
        assert error.why == (why or error.why)
    assert str(tunnel_pki.agent.key) in refusal(TlsFiles(pair.certificate, tunnel_pki.agent.key)).remedy
    assert refusal(TlsFiles(tunnel_pki.agent.certificate, pair.key, authority), of_agent=True).code == "UMB020"


def test_authorities_that_cannot_be_used_are_refused_with_what_is_wrong(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    error = refusal(TlsFiles(), of_agent=True)
    assert (error.code, error.what) == ("UMB022", "cannot load the server CA certificate")
    assert error.why == "open : no such file or directory"
    path = tmp_path / "ca.crt"
    block = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    for text in ("", "no certificate in here\n", tunnel_pki.server.key.read_text(), block):
        path.write_text(text)
        error = refusal(TlsFiles(authority=path), of_agent=True)
        assert error.code == "UMB021"
        assert str(path) in error.what


def test_an_encrypted_key_is_refused_and_no_password_is_requested(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    key = serialization.load_pem_private_key(tunnel_pki.server.key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"top secret"),
        )
    )
    error = refusal(TlsFiles(tunnel_pki.server.certificate, locked))
    assert error.code == "UMB020"
    assert "encrypted" in error.why


def test_a_bundle_may_hold_several_authorities_and_keys_and_comments(tunnel_pki: TunnelPki, tmp_path: Path) -> None:
    other = FolderAuthority(tmp_path, "other")
    bundle = tmp_path / "bundle.crt"
    parts = [
        "# Zertifizierungsstelle für Köln — naïve\n",
        tunnel_pki.authority.certificate_file.read_text(),
        tunnel_pki.server.key.read_text(),
        "subject=/CN=second\n",
        other.certificate_file.read_text(),
    ]
    bundle.write_text("".join(parts), encoding="utf-8")
    assert len(agent_context(TlsFiles(authority=bundle), ()).get_ca_certs()) == 2


def test_an_end_without_close_notify_is_a_loss_whatever_python_thinks(tunnel_pki: TunnelPki) -> None:
    """Python up to 3.11.3 sets an option by which a truncated connection looks like a closed one."""
    made = (
        listener_context(server_files(tunnel_pki), POLICY, "h2", "agent"),
        agent_context(agent_files(tunnel_pki), ()),
        noticing_truncation(_forgiving()),
    )
    assert [context.options & ssl.OP_IGNORE_UNEXPECTED_EOF for context in made] == [0, 0, 0]


def _forgiving() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    return context


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=("CRLF", "CRLF and a byte order mark"))
def test_files_with_line_ends_and_marks_of_another_system_are_loaded(
    plane: Loop, tunnel_pki: TunnelPki, tmp_path: Path, mark: bytes
) -> None:
    files = []
    for source in (tunnel_pki.agent.certificate, tunnel_pki.agent.key, tunnel_pki.authority.certificate_file):
        files.append(tmp_path / source.name)
        files[-1].write_bytes(mark + source.read_bytes().replace(b"\n", b"\r\n"))
    dialler = agent_context(TlsFiles(*files), ())
    server, _ = shaken(plane, listener_context(server_files(tunnel_pki), POLICY, "h2", "agent"), dialler)
    assert server.getpeercert()
