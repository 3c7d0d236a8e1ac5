"""The names and labels that dashboards and alerts are written for."""

from prometheus_client.parser import text_string_to_metric_families

from umbilical.proxies.metrics import ProxyMetrics


def _families(metrics: ProxyMetrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        found[family.name] = {(sample.name, *sorted(sample.labels.items())): sample.value for sample in family.samples}
    return found  # type: ignore[return-value]


def test_a_proxy_that_did_nothing_yet_shows_what_is_always_there() -> None:
    families = _families(ProxyMetrics())
    ours = {name for name in families if name.startswith("umbilical_proxy_")}
    assert ours == {"umbilical_proxy_connections", "umbilical_proxy_tunnel_healthy", "umbilical_proxy_bytes"}
    assert "process_resident_memory_bytes" in families
    assert set(families["umbilical_proxy_bytes"].values()) == {0.0}


def test_every_count_has_its_name_and_labels() -> None:
    metrics = ProxyMetrics()
    metrics.refused("limit")
    metrics.requested("socks5", "ok")
    metrics.requested("connect", "no-agent")
    metrics.dialled("tunnel", "ok", 0.003)
    metrics.dialled("direct", "refused", 0.2)
    metrics.looked_up("guest", "cached")
    metrics.traffic.to_client.total += 7
    text = metrics.render().decode()
    for line in (
        'umbilical_proxy_refused_connections_total{reason="limit"} 1',
        'umbilical_proxy_requests_total{protocol="socks5",result="ok"} 1',
        'umbilical_proxy_requests_total{protocol="connect",result="no-agent"} 1',
        'umbilical_proxy_dials_total{way="tunnel",result="ok"} 1',
        'umbilical_proxy_dials_total{way="direct",result="refused"} 1',
        'umbilical_proxy_dial_duration_seconds_bucket{way="tunnel",le="0.005"} 1',
        'umbilical_proxy_dial_duration_seconds_count{way="direct"} 1',
        'umbilical_proxy_lookups_total{way="guest",result="cached"} 1',
        'umbilical_proxy_bytes_total{direction="to_client"} 7',
        'umbilical_proxy_bytes_total{direction="to_endpoint"} 0',
    ):
        assert line in text.splitlines()


def test_gauges_are_asked_at_each_scrape() -> None:
    metrics = ProxyMetrics()
    open_now = [1]
    metrics.connections = lambda: open_now[0]
    metrics.tunnel_healthy = lambda: 1
    assert "umbilical_proxy_connections 1\n" in metrics.render().decode()
    open_now[0] = 5
    assert "umbilical_proxy_connections 5\n" in metrics.render().decode()
    assert "umbilical_proxy_tunnel_healthy 1\n" in metrics.render().decode()


def test_certificates_are_shown_with_the_rest() -> None:
    metrics = ProxyMetrics()
    metrics.certificates.expiry["dialer", "certificate"] = 1.0
    metrics.certificates.reloaded("dialer", "success")
    text = metrics.render().decode()
    assert 'umbilical_certificate_expiry_timestamp_seconds{role="dialer",file="certificate"} 1' in text
    assert 'umbilical_certificate_reloads_total{role="dialer",result="success"} 1' in text
