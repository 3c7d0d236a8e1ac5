"""The metrics that alerts and dashboard read, under the names by which servers, agents and proxies show them.

A pure room cannot ask those programs; a test compares every name and label here with what they really show.
"""

from typing import Final

_SERVER: Final = "konnectivity_network_proxy_server_"
_AGENT: Final = "konnectivity_network_proxy_agent_"
_PROXY: Final = "umbilical_proxy_"

READY_BACKENDS: Final = f"{_SERVER}ready_backends"
PENDING_DIALS: Final = f"{_SERVER}pending_backend_dials"
ESTABLISHED: Final = f"{_SERVER}established_connections"
HTTP_CONNECTIONS: Final = f"{_SERVER}http_connections"
DIAL_FAILURES: Final = f"{_SERVER}dial_failure_count"
SERVER_DIAL_SECONDS: Final = f"{_SERVER}dial_duration_seconds"
SERVER_PACKETS: Final = f"{_SERVER}stream_packets_total"
SERVER_STREAM_ERRORS: Final = f"{_SERVER}stream_errors_total"

OPEN_SERVERS: Final = f"{_AGENT}open_server_connections"
KNOWN_SERVERS: Final = f"{_AGENT}known_server_count"
OPEN_ENDPOINTS: Final = f"{_AGENT}open_endpoint_connections"
ENDPOINT_DIAL_SECONDS: Final = f"{_AGENT}dial_duration_seconds"
ENDPOINT_DIAL_FAILURES: Final = f"{_AGENT}endpoint_dial_failure_total"

PROXY_CONNECTIONS: Final = f"{_PROXY}connections"
PROXY_REFUSED: Final = f"{_PROXY}refused_connections_total"
PROXY_REQUESTS: Final = f"{_PROXY}requests_total"
PROXY_DIALS: Final = f"{_PROXY}dials_total"
PROXY_DIAL_SECONDS: Final = f"{_PROXY}dial_duration_seconds"
PROXY_BYTES: Final = f"{_PROXY}bytes_total"
PROXY_LOOKUPS: Final = f"{_PROXY}lookups_total"
PROXY_HEALTHY: Final = f"{_PROXY}tunnel_healthy"

CERTIFICATE_EXPIRY: Final = "umbilical_certificate_expiry_timestamp_seconds"
CERTIFICATE_RELOADS: Final = "umbilical_certificate_reloads_total"
MEMORY: Final = "process_resident_memory_bytes"
CPU: Final = "process_cpu_seconds_total"
BUILD: Final = "umbilical_build_info"

DEFAULT_ROUTE: Final = 'proxy_strategy="defaultRoute"'
"""The agents on nodes."""
DEST_HOST: Final = 'proxy_strategy="destHost"'
"""The addresses that the control-plane agent answers for."""
DIALS_SENT: Final = 'segment="to_agent", packet_type="DIAL_REQ"'
DIALS_ANSWERED: Final = 'segment="from_agent", packet_type="DIAL_RSP"'
