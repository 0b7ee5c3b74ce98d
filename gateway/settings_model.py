"""The settings as frozen values: names, defaults and rules of contract 4.

What each means stands in ``docs/configuration.md``; a test holds the two together.

A field is here only if its feature exists: accepting ``auth.enable: true`` without enforcing it would be a
hole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gateway.settings_types import (
    AgentId,
    Algorithms,
    Audiences,
    Bytes,
    CardForm,
    Count,
    CountOrZero,
    Dialect,
    EvictOn,
    HeadBytes,
    HeaderNames,
    Host,
    HostRules,
    Hosts,
    Interval,
    JwksUrl,
    KeyPrefix,
    Leeway,
    LogFormat,
    LogLevel,
    MetricName,
    Name,
    Networks,
    Origins,
    Patterns,
    Port,
    PublicUrl,
    Rate,
    Routing,
    Scopes,
    Seconds,
    SecondsOrZero,
    StoreUrl,
    Text,
    VariableName,
    expected,
)
from registry.redis_url import DEFAULT_PREFIX

KUBEMQ_VARIABLES: Mapping[str, str] = {
    "CONNECTORSA2_A_ENABLE": "a2a.enable",
    "CONNECTORSA2_A_AGENT_TTL_SECONDS": "a2a.agent_ttl_seconds",
    "CONNECTORSA2_A_DEFAULT_TIMEOUT_SECONDS": "a2a.default_timeout_seconds",
    "CONNECTORSA2_A_MAX_TIMEOUT_SECONDS": "a2a.max_timeout_seconds",
    "CONNECTORSA2_A_MAX_AGENTS": "a2a.max_agents",
    "CONNECTORSA2_A_MAX_SSE_IDLE_SECONDS": "a2a.max_sse_idle_seconds",
    "CONNECTORSA2_A_TRUSTED_ORIGINS": "a2a.trusted_origins",
    "CONNECTORSA2_A_AGENT_MAX_RESPONSE_BYTES": "a2a.agent_max_response_bytes",
    "CONNECTORSA2_A_AGENT_TLS_SKIP_VERIFY": "a2a.agent_tls_skip_verify",
    "CONNECTORSA2_A_AGENT_MAX_CONCURRENCY": "a2a.agent_max_concurrency",
}


def default_store_url(environ: Mapping[str, str]) -> str:
    """A SQLite file in the user's state directory (XDG base directories: a relative value does not count)."""
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return f"sqlite:///{os.path.join(state, 'vitalgate', 'registry.db')}"


class Section(BaseModel):
    """What all sections share: frozen, no unknown keys, no value in an error's text."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class A2ASettings(Section):
    """Agents and the calls to them."""

    enable: bool = True
    agent_ttl_seconds: Seconds = 300
    default_timeout_seconds: Seconds = 300
    max_timeout_seconds: Seconds = 3600
    max_agents: CountOrZero = 0
    max_sse_idle_seconds: Seconds = 300
    trusted_origins: Origins = ("auto",)
    agent_max_response_bytes: Bytes = 10 * 1024 * 1024
    agent_tls_skip_verify: bool = False
    agent_max_concurrency: Count = 100
    dialect: Dialect = "auto"
    agent_card: CardForm = "gateway"
    max_request_bytes: Bytes = 10 * 1024 * 1024
    keepalive_seconds: Seconds = 30
    gateway_timeout_buffer_seconds: SecondsOrZero = 10
    forward_headers: HeaderNames = ()


class ServerSettings(Section):
    """The API listener and its life (contract 1 and 8)."""

    host: Host = "127.0.0.1"
    port: Port = 9090
    public_url: PublicUrl | None = None
    allowed_hosts: Hosts = ()
    trusted_proxies: Networks = ()
    request_timeout_seconds: Seconds = 60
    shutdown_delay_seconds: SecondsOrZero = 0
    drain_seconds: SecondsOrZero = 20
    platform_name: Name = "kubemq"
    fast_path: bool = True


class MetricsSettings(Section):
    """The metrics listener (contract 1 and 7); port 0 serves ``/metrics`` on the API's port."""

    host: Host = "127.0.0.1"
    port: Port = 8080
    namespace: MetricName = "kubemq_a2a"


class RegistrySettings(Section):
    """Where registrations are kept."""

    url: StoreUrl = Field(default_factory=lambda: default_store_url(os.environ))
    key_prefix: KeyPrefix = DEFAULT_PREFIX


class Credential(Section):
    """What the gateway shows to one agent (contract 6.4)."""

    bearer_env: VariableName


class UpstreamSettings(Section):
    """How and where the gateway connects (contract 6.3 and 6.4)."""

    ca_file: Text | None = None
    client_cert: Text | None = None
    client_key: Text | None = None
    allow_loopback: bool = False
    allow_private: bool = True
    allow_hosts: HostRules = ()
    deny_hosts: HostRules = ()
    credentials: dict[AgentId, Credential] = {}
    caller_credentials: bool = False


class PolicyRule(Section):
    """Whom a rule is about, and what it grants (contract 6.1)."""

    principals: Patterns = ()
    scopes: Scopes = ()
    call: Patterns = ()
    register_: Patterns = Field(default=(), alias="register")
    read: bool = False
    administer: bool = False

    @model_validator(mode="after")
    def _names_somebody(self) -> Self:
        if not (self.principals or self.scopes):
            raise expected('must name principals or scopes; principals: ["*"] means everybody')
        return self


def _is_a_policy(rules: tuple[PolicyRule, ...]) -> tuple[PolicyRule, ...]:
    if not rules:
        raise expected("must hold at least one rule; leave it out where every valid token may do everything")
    return rules


Policy = Annotated[
    tuple[PolicyRule, ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    AfterValidator(_is_a_policy),
]


class AuthSettings(Section):
    """Who may call (contract 6.1)."""

    enable: bool = False
    secret_env: VariableName | None = None
    public_key_file: Text | None = None
    jwks_url: JwksUrl | None = None
    algorithms: Algorithms = ()
    issuer: Text | None = None
    audience: Audiences = ()
    leeway_seconds: Leeway = 30
    principal_claim: Name = "sub"
    policy: Policy | None = None

    @property
    def key_sources(self) -> int:
        """How many are named; with authentication there must be one."""
        return sum(it is not None for it in (self.secret_env, self.public_key_file, self.jwks_url))


class LimitsSettings(Section):
    """Limits on callers (contract 6.5)."""

    header_bytes: HeadBytes = 32768
    requests_per_second: Rate = 0
    registrations_per_minute: Rate = 0
    connections_per_client: CountOrZero = 0
    streams: CountOrZero = 10000


class HealthSettings(Section):
    """Checks of the agents, and what they do to routing (health contract 7)."""

    enable: bool = True
    interval_seconds: Interval = 30
    concurrency: Count = 50
    routing: Routing = "enforce"
    evict_on: EvictOn = ("UNREACHABLE",)
    trial_seconds: Interval = 10


class LogSettings(Section):
    """Logs (contract 8)."""

    level: LogLevel = "info"
    format: LogFormat = "json"
    calls: bool = True


class Settings(BaseSettings):
    """The whole configuration. ``Settings()`` holds the defaults and reads no variable; ``load`` does."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    a2a: A2ASettings = A2ASettings()
    server: ServerSettings = ServerSettings()
    metrics: MetricsSettings = MetricsSettings()
    registry: RegistrySettings = Field(default_factory=RegistrySettings)
    upstream: UpstreamSettings = UpstreamSettings()
    auth: AuthSettings = AuthSettings()
    limits: LimitsSettings = LimitsSettings()
    health: HealthSettings = HealthSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only explicit values: pydantic-settings' own readers pass over what they do not know."""
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule between fields: reported at the first, and only while each of them is right by itself."""

    fields: tuple[str, ...]
    holds: Callable[[Settings], bool]
    expected: str


RULES = (
    Rule(
        ("a2a.max_timeout_seconds", "a2a.default_timeout_seconds"),
        lambda it: it.a2a.max_timeout_seconds >= it.a2a.default_timeout_seconds,
        "must be at least a2a.default_timeout_seconds",
    ),
    Rule(
        ("upstream.client_key", "upstream.client_cert"),
        lambda it: it.upstream.client_key is None or it.upstream.client_cert is not None,
        "needs upstream.client_cert",
    ),
    Rule(
        ("auth.enable", "auth.secret_env", "auth.public_key_file", "auth.jwks_url"),
        lambda it: not it.auth.enable or it.auth.key_sources == 1,
        "needs exactly one of auth.secret_env, auth.public_key_file and auth.jwks_url",
    ),
    Rule(
        ("auth.policy", "auth.enable"),
        lambda it: it.auth.policy is None or it.auth.enable,
        "needs auth.enable: true",
    ),
    Rule(
        ("metrics.port", "server.port"),  # also on two addresses: the application tells its listeners by port
        lambda it: it.metrics.port == 0 or it.metrics.port != it.server.port,
        "must differ from server.port (0 serves /metrics on the port of the API)",
    ),
)

SECTIONS: Mapping[str, type[Section]] = {
    "a2a": A2ASettings,
    "server": ServerSettings,
    "metrics": MetricsSettings,
    "registry": RegistrySettings,
    "upstream": UpstreamSettings,
    "auth": AuthSettings,
    "limits": LimitsSettings,
    "health": HealthSettings,
    "log": LogSettings,
}
