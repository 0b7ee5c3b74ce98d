"""Pure: the configurations of the agent and of every proxy, as text."""

import json
from collections.abc import Mapping
from typing import Any

NGINX_FRAME = """
daemon off;
worker_processes 1;
error_log stderr error;
pid {folder}/nginx.pid;
{user}
events {{ worker_connections 16384; }}
http {{
  access_log off;
  default_type application/json;
  keepalive_requests 1000000000;
  keepalive_timeout 75s;
  client_max_body_size 10m;
  client_body_buffer_size 1m;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
{servers}
}}
"""

AGENT = """
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    open_file_cache max=8;
    root {folder};
    # A POST to a static file is a 405, which this turns into the file itself.
    error_page 405 =200 $uri;
    location = / {{ return 200 '{small}'; }}
    location = /large {{ }}
  }}
"""

PROXY = """
  upstream agent {{ server 127.0.0.1:{agent_port}; keepalive 256; keepalive_requests 1000000000; }}
  upstream streams {{ server 127.0.0.1:{stream_port}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_buffers 16 16k;
{locations}
    location = {stream_path} {{
      proxy_pass http://streams/;
      proxy_buffering off;
      proxy_read_timeout 1d;
      proxy_send_timeout 1d;
    }}
  }}
"""


def agent(*, port: int, folder: str, small: bytes, user: str) -> str:
    """The agent, an nginx: the small answer on `/`, the file `large` of its folder on `/large`."""
    server = AGENT.format(port=port, folder=folder, small=small.decode("ascii"))
    return NGINX_FRAME.format(folder=folder, servers=server, user=user)


def nginx(
    *,
    port: int,
    folder: str,
    agent_port: int,
    routes: Mapping[str, str],
    stream_port: int,
    stream_path: str,
    user: str,
) -> str:
    """The proxy nginx; routes: path -> path at the agent; streams unbuffered and without a limit in time."""
    locations = "\n".join(
        f"    location = {path} {{ proxy_pass http://agent{target}; }}" for path, target in routes.items()
    )
    server = PROXY.format(
        port=port, agent_port=agent_port, locations=locations, stream_port=stream_port, stream_path=stream_path
    )
    return NGINX_FRAME.format(folder=folder, servers=server, user=user)


def envoy(*, port: int, agent_port: int, routes: Mapping[str, str], stream_port: int, stream_path: str) -> str:
    """Envoy as a proxy, static configuration (JSON, which is YAML)."""
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "stat_prefix": "bench",
        "stream_idle_timeout": "0s",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "agents",
                    "domains": ["*"],
                    "routes": [
                        *(_route(path, "agent", target, timeout="300s") for path, target in routes.items()),
                        _route(stream_path, "streams", "/", timeout="0s", idle_timeout="0s"),
                    ],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
            }
        ],
    }
    listener = {
        "name": "bench",
        "address": _address(port),
        "tcp_backlog_size": 4096,
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    clusters = [_cluster("agent", agent_port), _cluster("streams", stream_port)]
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": clusters}}, indent=1)


def _route(path: str, cluster: str, target: str, **times: str) -> dict[str, Any]:
    rewrite = {"pattern": {"regex": "^.*$"}, "substitution": target}
    return {"match": {"path": path}, "route": {"cluster": cluster, **times, "regex_rewrite": rewrite}}


def _cluster(name: str, port: int) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": _address(port)}}
    plenty = 100_000  # the default of 1,024 would refuse streams
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": {
            "thresholds": [{"max_connections": plenty, "max_pending_requests": plenty, "max_requests": plenty}]
        },
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def vitalgate(
    *,
    port: int,
    metrics_port: int,
    log_calls: bool = True,
    store: str = "memory://",
    checks: bool = True,
    secret_env: str = "",
) -> str:
    """The gateway as it comes (JSON, which is YAML), but for ports, the store and two limits.

    The concurrency limit is a count either way; its default of 100 would refuse calls at c=128, and streams. The
    TTL keeps the agents alive through a long run.
    """
    settings: dict[str, Any] = {
        "server": {"host": "127.0.0.1", "port": port},
        "metrics": {"port": metrics_port},
        "registry": {"url": store},
        "health": {"enable": checks},
        "a2a": {"agent_max_concurrency": 16384, "agent_ttl_seconds": 3600},
    }
    if not log_calls:
        settings["log"] = {"calls": False}
    if secret_env:
        settings["auth"] = {"enable": True, "secret_env": secret_env}
    return json.dumps(settings, indent=1)


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
