"""Configuration: contract 4."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.settings import Settings, SettingsError, load, shown
from gateway.settings_model import KUBEMQ_VARIABLES
from gateway.settings_sources import field_names, variable

HOME = {"HOME": "/home/ada"}


@pytest.fixture
def file(tmp_path: Path):
    """Writes a configuration file and returns its path."""

    def write(text: str | bytes) -> str:
        path = tmp_path / "gateway.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def problems(path: str | None, **variables: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(path, HOME | variables)
    return [problem.replace(path or "\0", "FILE") for problem in caught.value.problems]


def test_defaults_are_those_of_contract_4() -> None:
    a2a = load(None, HOME).settings.a2a
    assert a2a.model_dump() == {
        "enable": True,
        "agent_ttl_seconds": 300,
        "default_timeout_seconds": 300,
        "max_timeout_seconds": 3600,
        "max_agents": 0,
        "max_sse_idle_seconds": 300,
        "trusted_origins": ("auto",),
        "agent_max_response_bytes": 10485760,
        "agent_tls_skip_verify": False,
        "agent_max_concurrency": 100,
        "dialect": "auto",
        "agent_card": "gateway",
        "max_request_bytes": 10485760,
        "keepalive_seconds": 30,
        "gateway_timeout_buffer_seconds": 10,
        "forward_headers": (),
    }


def test_defaults_listen_on_loopback_only() -> None:
    """Contract 1: authentication is off by default, so nobody else may come in."""
    settings = load(None, HOME).settings
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 9090)
    assert (settings.metrics.host, settings.metrics.port) == ("127.0.0.1", 8080)
    assert not settings.upstream.allow_loopback


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({"HOME": "/home/ada"}, "sqlite:////home/ada/.local/state/vitalgate/registry.db"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/var/state"}, "sqlite:////var/state/vitalgate/registry.db"),
        ({"HOME": "/h", "XDG_STATE_HOME": "not/absolute"}, "sqlite:////h/.local/state/vitalgate/registry.db"),
    ],
)
def test_registrations_are_kept_in_the_users_state_directory(environ: dict[str, str], url: str) -> None:
    loaded = load(None, environ)
    assert loaded.settings.registry.url == url
    assert loaded.origins["registry.url"] == "default"


def test_settings_made_without_load_read_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """pydantic-settings would take a variable LOG for the section of that name."""
    monkeypatch.setenv("LOG", '{"level": "debug"}')
    assert Settings().log.level == "info"


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.a2a.max_agents = 3  # type: ignore[misc]


def test_each_source_covers_the_ones_before_it(file) -> None:
    """Contract 4: the file, then KubeMQ's variables, then VITALGATE_*; the command line last."""
    path = file(
        "a2a:\n  agent_ttl_seconds: 1\n  max_agents: 1\n  keepalive_seconds: 1\nserver:\n  port: 1\nlog:\n"
    )
    loaded = load(
        None,
        HOME
        | {
            "VITALGATE_CONFIG": path,
            "CONNECTORSA2_A_AGENT_TTL_SECONDS": "2",
            "CONNECTORSA2_A_MAX_AGENTS": "2",
            "VITALGATE_A2A__AGENT_TTL_SECONDS": "3",
            "VITALGATE_SERVER__PORT": "3",
        },
        {"server.port": 4},
    )
    settings, origins = loaded.settings, loaded.origins
    assert (settings.a2a.keepalive_seconds, origins["a2a.keepalive_seconds"]) == (1, f"{path}:4")
    assert (settings.a2a.max_agents, origins["a2a.max_agents"]) == (2, "CONNECTORSA2_A_MAX_AGENTS")
    ttl = (settings.a2a.agent_ttl_seconds, origins["a2a.agent_ttl_seconds"])
    assert ttl == (3, "VITALGATE_A2A__AGENT_TTL_SECONDS")
    assert (settings.server.port, origins["server.port"]) == (4, "--port")
    assert origins["log.level"] == "default"


def test_a_file_named_in_the_call_covers_the_variable(file) -> None:
    path = file("log: {level: debug}")
    assert load(path, HOME | {"VITALGATE_CONFIG": "/nowhere"}).settings.log.level == "debug"


def test_every_kubemq_variable_is_read() -> None:
    """Contract 4: the ten names, as irregular as KubeMQ's documentation has them."""
    values = {
        "CONNECTORSA2_A_ENABLE": ("FALSE", False),
        "CONNECTORSA2_A_AGENT_TTL_SECONDS": ("60", 60),
        "CONNECTORSA2_A_DEFAULT_TIMEOUT_SECONDS": ("61", 61),
        "CONNECTORSA2_A_MAX_TIMEOUT_SECONDS": ("62", 62),
        "CONNECTORSA2_A_MAX_AGENTS": ("63", 63),
        "CONNECTORSA2_A_MAX_SSE_IDLE_SECONDS": ("64", 64),
        "CONNECTORSA2_A_TRUSTED_ORIGINS": (
            "https://a.example, http://b.example:81",
            ("https://a.example", "http://b.example:81"),
        ),
        "CONNECTORSA2_A_AGENT_MAX_RESPONSE_BYTES": ("65", 65),
        "CONNECTORSA2_A_AGENT_TLS_SKIP_VERIFY": ("True", True),
        "CONNECTORSA2_A_AGENT_MAX_CONCURRENCY": ("66", 66),
    }
    assert set(values) == set(KUBEMQ_VARIABLES)
    a2a = load(None, HOME | {name: text for name, (text, _) in values.items()}).settings.a2a
    for name, (_, value) in values.items():
        assert getattr(a2a, KUBEMQ_VARIABLES[name].removeprefix("a2a.")) == value


@pytest.mark.parametrize("text", ["TRUE", "1", "yes", "On", " true ", "y"])
def test_truth_in_a_variable_is_read_leniently(text: str) -> None:
    loaded = load(None, HOME | {"VITALGATE_A2A__AGENT_TLS_SKIP_VERIFY": text})
    assert loaded.settings.a2a.agent_tls_skip_verify is True


@pytest.mark.parametrize("text", ["a.example,b.example", " a.example , ,b.example,", '["a.example", "b.example"]'])
def test_lists_in_a_variable_are_comma_or_json_lists(text: str) -> None:
    loaded = load(None, HOME | {"VITALGATE_SERVER__ALLOWED_HOSTS": text})
    assert loaded.settings.server.allowed_hosts == ("a.example", "b.example")


def test_an_empty_variable_counts_as_not_set() -> None:
    """Compose files write ``NAME=${NAME}``: empty where nothing was given."""
    loaded = load(
        None, HOME | {"VITALGATE_A2A__MAX_AGENTS": "", "CONNECTORSA2_A_ENABLE": " ", "VITALGATE_CONFIG": ""}
    )
    assert loaded.settings == Settings(registry=loaded.settings.registry)


def test_numbers_of_seconds_keep_their_form() -> None:
    """The TTL goes back to agents in JSON: 60, not 60.0."""
    loaded = load(
        None, HOME | {"VITALGATE_A2A__AGENT_TTL_SECONDS": "60", "VITALGATE_SERVER__DRAIN_SECONDS": "0.5"}
    )
    assert json.dumps([loaded.settings.a2a.agent_ttl_seconds, loaded.settings.server.drain_seconds]) == "[60, 0.5]"


def test_credentials_merge_by_agent_and_may_name_any_variable(file) -> None:
    """Contract 6.4. A variable that a credential names is not an unknown one, whatever it is called."""
    path = file("upstream:\n  credentials:\n    one: {bearer_env: VITALGATE_TOKEN_ONE}\n")
    environ = HOME | {
        "VITALGATE_TOKEN_ONE": "s3cret",
        "VITALGATE_UPSTREAM__CREDENTIALS": '{"a2": {"bearer_env": "B"}}',
    }
    loaded = load(path, environ)
    names = {agent: credential.bearer_env for agent, credential in loaded.settings.upstream.credentials.items()}
    assert names == {"one": "VITALGATE_TOKEN_ONE", "a2": "B"}
    assert loaded.origins["upstream.credentials.one"] == f"{path}:3"
    assert loaded.origins["upstream.credentials.a2"] == "VITALGATE_UPSTREAM__CREDENTIALS"


def test_every_mistake_of_every_source_is_named_at_once(file) -> None:
    """Contract 4; also where a later source covers the wrong value."""
    path = file(
        'a2a:\n  enable: "true"\n  max_agents: -1\n  colour: red\nservr: {}\nserver:\n  port: 99999\n'
        "upstream:\n  client_key: key.pem\n  credentials:\n    good: {bearer: x}\n"
    )
    found = problems(
        path,
        CONNECTORSA2_A_MAX_AGENTS="many",
        VITALGATE_A2A__ENABLE="true",
        VITALGATE_A2A__MAX_TIMEOUT_SECONDS="10",
        VITALGATE_LOG__LEVEL="loud",
        VITALGATE_SERVER_PORT="1",
        VITALGATE_A2A__TTL="1",
    )
    assert sorted(found) == sorted(
        [
            "FILE:2: a2a.enable: must be true or false",
            "FILE:3: a2a.max_agents: must be greater than or equal to 0",
            "FILE:4: a2a.colour: unknown setting",
            "FILE:5: servr: unknown setting; did you mean server?",
            "FILE:7: server.port: must be less than or equal to 65535",
            "FILE:9: upstream.client_key: needs upstream.client_cert",
            "FILE:11: upstream.credentials.good.bearer_env: is missing",
            "FILE:11: upstream.credentials.good.bearer: unknown setting",
            "CONNECTORSA2_A_MAX_AGENTS: a2a.max_agents: must be a whole number",
            "VITALGATE_A2A__MAX_TIMEOUT_SECONDS: a2a.max_timeout_seconds: "
            "must be at least a2a.default_timeout_seconds",
            "VITALGATE_LOG__LEVEL: log.level: must be 'debug', 'info', 'warning' or 'error'",
            "VITALGATE_A2A__TTL: unknown variable",
            "VITALGATE_SERVER_PORT: unknown variable; did you mean VITALGATE_SERVER__PORT?",
        ]
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a2a:\n  max_agents: 1\n  max_agents: 1\n", "FILE:3: a2a.max_agents: stands twice"),
        ("log: {}\na2a: {}\nlog: {}\n", "FILE:3: log: stands twice"),
        ('log: {level: info, "level": info}', "FILE:1: log.level: stands twice"),
        ("log: {}\n---\nlog: {}\n", "FILE:3: a second document; the file must hold one"),
        (
            "- a2a\n",
            "FILE: must be a mapping of sections: a2a, server, metrics, registry, upstream, auth, limits,"
            " health, log",
        ),
        (
            "a2a",
            "FILE: must be a mapping of sections: a2a, server, metrics, registry, upstream, auth, limits,"
            " health, log",
        ),
        (
            "a2a:\n\tenable: true\n",
            "FILE:2:1: not valid YAML: a tab, where only spaces may indent",
        ),
        ("a2a: {\n", "FILE:2:1: not valid YAML: expected the node content, but found '<stream end>'"),
        ("a2a: }\n", "FILE:1:6: not valid YAML: expected the node content, but found '}'"),
        ('a2a: "\\q"\n', "FILE:1:8: not valid YAML: found unknown escape character ..."),
        ("a2a: *secret\n", "FILE:1:6: not valid YAML: found undefined alias ..."),
        (
            "a2a: !!python/object:os.system {}\n",
            "FILE:1:6: not valid YAML: could not determine a constructor for the tag ...",
        ),
        ("? [a]\n: b\n", "FILE:1: the key must be text (quote it)"),
        (
            "log: {level: 2024-13-45}\n",
            "FILE: not valid YAML: a date or number that does not exist (quote it)",
        ),
        (b"log: {level: \xff}\n", "FILE: not valid YAML: must be UTF-8 text without control characters"),
        (b"log: {level: \x01}\n", "FILE: not valid YAML: must be UTF-8 text without control characters"),
        ("a: " + "[" * 5000, "FILE: nested too deeply"),
        (b"#" * (1024 * 1024 + 1), "FILE: larger than 1048576 bytes"),
        ("a2a: 3\n", "FILE:1: a2a: must be a mapping"),
        ("a2a: [enable]\n", "FILE:1: a2a: must be a mapping"),
        ("upstream: {credentials: []}\n", "FILE:1: upstream.credentials: must be a mapping"),
        ("a2a: {forward_headers: x}\n", "FILE:1: a2a.forward_headers: must be a list"),
        (
            "server:\n  allowed_hosts:\n  - a\n  - 3\n",
            "FILE:4: server.allowed_hosts[1]: must be text (quote it)",
        ),
        ("a2a: {agent_ttl_seconds: '300'}\n", "FILE:1: a2a.agent_ttl_seconds: must be a number"),
        ("a2a: {agent_ttl_seconds: true}\n", "FILE:1: a2a.agent_ttl_seconds: must be a number"),
        ("a2a: {agent_ttl_seconds: 0}\n", "FILE:1: a2a.agent_ttl_seconds: must be greater than 0"),
        ("a2a: {agent_ttl_seconds: .nan}\n", "FILE:1: a2a.agent_ttl_seconds: must be a finite number"),
        ("a2a: {agent_ttl_seconds: 1e12}\n", "FILE:1: a2a.agent_ttl_seconds: must be a number"),
        (
            "a2a: {agent_ttl_seconds: 1000000001}\n",
            "FILE:1: a2a.agent_ttl_seconds: must be less than or equal to 1000000000",
        ),
        ("a2a: {max_agents: 1.5}\n", "FILE:1: a2a.max_agents: must be a whole number"),
        ("a2a: {max_agents: }\n", "FILE:1: a2a.max_agents: must be a whole number"),
        ("a2a: {enable: 1}\n", "FILE:1: a2a.enable: must be true or false"),
        ("log: {level: 7}\n", "FILE:1: log.level: must be 'debug', 'info', 'warning' or 'error'"),
        ("server: {host: ''}\n", "FILE:1: server.host: must have at least 1 character"),
        (
            "server: {host: '[::1]'}\n",
            "FILE:1: server.host: must be an IP address or a host name, without a port",
        ),
        (
            "server: {public_url: gw.example}\n",
            "FILE:1: server.public_url: must be an absolute http(s) URL: ",
        ),
        (
            "server: {public_url: 'http://gw/?a'}\n",
            "FILE:1: server.public_url: must be a URL without a query",
        ),
        ("metrics: {namespace: a-b}\n", "FILE:1: metrics.namespace: must be letters, digits and underscores"),
        ("metrics: {port: 9090}\n", "FILE:1: metrics.port: must differ from server.port "),
        ("metrics: {host: 127.0.0.2, port: 9090}\n", "FILE:1: metrics.port: must differ from server.port "),
        ("registry: {url: 'sqlite:///:memory:'}\n", "FILE:1: registry.url: is no file; "),
        ("registry: {url: 'redis://'}\n", "FILE:1: registry.url: must be redis[s]://"),
        (
            "registry: {url: 'redis://a,b'}\n",
            "FILE:1: registry.url: must name one host; several are for redis+sentinel://",
        ),
        ("registry: {key_prefix: 'a b'}\n", "FILE:1: registry.key_prefix: must be visible ASCII without blanks"),
        (
            "registry: {url: 'sqlite:///'}\n",
            "FILE:1: registry.url: must be memory://, sqlite:///FILE or a redis:// URL",
        ),
        (
            "registry: {url: /tmp/x.db}\n",
            "FILE:1: registry.url: must be memory://, sqlite:///FILE or a redis:// URL",
        ),
        (
            "upstream: {deny_hosts: [10.0.0.1/8]}\n",
            "FILE:1: upstream.deny_hosts[0]: must be a network such as 10.0.0.0/8",
        ),
        (
            "upstream: {credentials: {X: {bearer_env: E}}}\n",
            "FILE:1: upstream.credentials.X: must be an agent id: ",
        ),
        (
            "a2a: {trusted_origins: ['https://x/']}\n",
            'FILE:1: a2a.trusted_origins[0]: must be "auto", "*", "null" or',
        ),
        ("a2a: {forward_headers: [x_y]}\n", "FILE:1: a2a.forward_headers[0]: must be a header's name"),
        (
            "limits: {header_bytes: 10}\n",
            "FILE:1: limits.header_bytes: must be greater than or equal to 1024",
        ),
        ("1: x\n", "FILE:1: the key must be text (quote it)"),
        ("a2a: {no: x}\n", "FILE:1: a2a: the key must be text (quote it)"),
        ("~: {}\n", "FILE:1: the key must be text (quote it)"),
        ("1.5: {a: 1}\n", "FILE:1: the key must be text (quote it)"),
        ("2020-01-01: {a: 1}\n", "FILE:1: the key must be text (quote it)"),
        ("!!binary YQ==: 1\n", "FILE:1: the key must be text (quote it)"),
        ("? !!str [a]\n: 1\n", "FILE:1: the key must be text (quote it)"),
        ("upstream:\n  credentials:\n    1.5: {bearer_env: A}\n", "FILE:3: upstream.credentials: the key must be"),
        ("a2a:\n  <<: {~: x}\n", "FILE:2: a2a: the key must be text (quote it)"),
        ("!!set {a2a: }\n", "FILE: must be a mapping of sections: a2a, "),
        ("a2a: {'evil \\n key': x}\n", "FILE:1: a2a....: unknown setting"),
    ],
)
def test_what_is_wrong_with_a_file(file, text: str | bytes, problem: str) -> None:
    (found,) = problems(file(text))
    assert found.startswith(problem)


@pytest.mark.parametrize("text", ["", "# all commented out\n", "---\n", "a2a:\n", "\ufefflog: {level: info}\n"])
def test_a_file_without_values_is_fine(file, text: str) -> None:
    assert load(file(text), HOME).settings.a2a.enable


def test_anchors_and_merge_keys_work(file) -> None:
    path = file("upstream:\n  credentials:\n    one: &it\n      bearer_env: E\n    two:\n      <<: *it\n")
    assert load(path, HOME).settings.upstream.credentials["two"].bearer_env == "E"


def test_many_aliases_take_no_time(file) -> None:
    """Each level doubles the one before: 2^60 nodes if they were walked one by one."""
    levels = "\n".join(f"x{n}: &x{n} [*x{n - 1}, *x{n - 1}]" for n in range(1, 60))
    assert len(problems(file(f"x0: &x0 [1]\n{levels}\n"))) == 60


@pytest.mark.parametrize(
    ("path", "why"), [("/nowhere/x.yaml", "No such file or directory"), ("/", "Is a directory")]
)
def test_a_file_that_cannot_be_read(path: str, why: str) -> None:
    with pytest.raises(SettingsError, match=f"{path}: cannot be read: {why}"):
        load(path, HOME)
    with pytest.raises(SettingsError, match=f"{path}: cannot be read: {why}"):
        load(None, HOME | {"VITALGATE_CONFIG": path})


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("VITALGATE_A2A__MAX_AGENTS", "1.5", "a2a.max_agents: must be a whole number"),
        ("VITALGATE_A2A__ENABLE", "maybe", "a2a.enable: must be true or false"),
        ("VITALGATE_A2A__AGENT_TTL_SECONDS", "nan", "a2a.agent_ttl_seconds: must be a finite number"),
        (
            "VITALGATE_SERVER__ALLOWED_HOSTS",
            "[1",
            "server.allowed_hosts: must be a comma list or a JSON list",
        ),
        (
            "VITALGATE_SERVER__ALLOWED_HOSTS",
            "[" * 100000,
            "server.allowed_hosts: must be a comma list or a JSON",
        ),
        ("VITALGATE_UPSTREAM__CREDENTIALS", "a=b", "upstream.credentials: must be a JSON object"),
        ("VITALGATE_UPSTREAM__CREDENTIALS", "[]", "upstream.credentials: must be a mapping"),
        ("VITALGATE_UPSTREAM__CREDENTIALS__AGENT", "x", "unknown variable"),
        ("VITALGATE_A2A", "{}", "unknown variable"),
        ("vitalgate_log__level", "info", "unknown variable; did you mean VITALGATE_LOG__LEVEL?"),
        ("VITALGATE_REGISTRY__KEY_PREFIX", "a b", "registry.key_prefix: must be visible ASCII without blanks"),
        ("VITALGATE_SERVER_PORT", "9091", "unknown variable; did you mean VITALGATE_SERVER__PORT?"),
        ("VITALGATE_PORT", "9091", "unknown variable"),
    ],
)
def test_what_is_wrong_with_a_variable(name: str, text: str, problem: str) -> None:
    (found,) = problems(None, **{name: text})
    assert found.startswith(f"{name}: {problem}")


def test_variables_kubernetes_sets_for_a_service_called_vitalgate_are_nobodys_mistake() -> None:
    load(
        None,
        HOME
        | {
            "VITALGATE_SERVICE_HOST": "10.0.0.7",
            "VITALGATE_SERVICE_PORT": "9090",
            "VITALGATE_SERVICE_PORT_API": "9090",
            "VITALGATE_PORT": "tcp://10.0.0.7:9090",
            "VITALGATE_PORT_9090_TCP": "tcp://10.0.0.7:9090",
            "VITALGATE_PORT_9090_TCP_ADDR": "10.0.0.7",
            "VITALGATE_METRICS_SERVICE_HOST": "10.0.0.8",
            "VITALGATE_METRICS_PORT": "tcp://10.0.0.8:8080",
        },
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("auth: {enable: true}", "auth.enable: needs exactly one of auth.secret_env, auth.public_key_file and "),
        (
            "auth: {enable: true, secret_env: A, jwks_url: 'https://idp/'}",
            "auth.enable: needs exactly one of auth.secret_env, auth.public_key_file and auth.jwks_url",
        ),
        ("auth: {secret: A}", "auth.secret: unknown setting"),
        ("auth: {jwks_url: 'https://u:p@idp/'}", "auth.jwks_url: must be an absolute http(s) URL: "),
        ("auth: {algorithms: [none]}", "auth.algorithms[0]: must be such as RS256 or EdDSA"),
        ("auth: {algorithms: RS256}", "auth.algorithms: must be a list"),
        ("auth: {leeway_seconds: 301}", "auth.leeway_seconds: must be less than or equal to 300"),
        ("auth: {policy: [{principals: [a]}]}", "auth.policy: needs auth.enable: true"),
        ("auth: {policy: []}", "auth.policy: must hold at least one rule; leave it out where "),
        ("auth: {policy: [{call: ['*']}]}", "auth.policy[0]: must name principals or scopes; "),
        ("auth: {policy: [{principals: ['']}]}", "auth.policy[0].principals[0]: must have at least 1 character"),
        ("auth: {policy: [{scopes: ['a b']}]}", "auth.policy[0].scopes[0]: must be a scope: visible ASCII "),
        ("auth: {policy: [{principals: [a], deny: [b]}]}", "auth.policy[0].deny: unknown setting"),
        ("auth: {policy: [{principals: [a], call: true}]}", "auth.policy[0].call: must be a list"),
        ("server: {trusted_proxies: [proxy.example]}", "server.trusted_proxies[0]: must be an IP address or a "),
        ("limits: {requests_per_second: .inf}", "limits.requests_per_second: must be "),
    ],
)
def test_what_is_wrong_with_security(file, text: str, problem: str) -> None:
    """Contract 6.1, 6.2, 6.5: nothing is taken that would not be enforced as it reads."""
    (found,) = problems(file(f"{text}\n"))
    assert found.startswith(f"FILE:1: {problem}")


def test_security_from_the_environment() -> None:
    """Contract 4: the variable with the secret may itself look like a setting; a policy is JSON."""
    rule = {"principals": ["a"], "register": ["x-*"]}
    settings = load(
        None,
        {
            "HOME": "/",
            "VITALGATE_AUTH__ENABLE": "yes",
            "VITALGATE_AUTH__SECRET_ENV": "VITALGATE_JWT_SECRET",
            "VITALGATE_JWT_SECRET": "S3CRET",  # pragma: allowlist secret
            "VITALGATE_AUTH__AUDIENCE": "gateway, other",
            "VITALGATE_AUTH__POLICY": json.dumps([rule]),
        },
    ).settings
    assert settings.auth.audience == ("gateway", "other")
    assert settings.auth.policy is not None
    assert settings.auth.policy[0].register_ == ("x-*",)
    assert "S3CRET" not in repr(settings) + str(shown(settings))


def test_no_problem_holds_a_value(file) -> None:
    """Contract 4: values may be secrets, wherever they were put by mistake."""
    secret = "hunter2-S3CRET"  # pragma: allowlist secret
    path = file(
        f"a2a: {{enable: {secret}, dialect: {secret}, forward_headers: {secret}, x: {secret}}}\n"
        f"auth: {{secret: {secret}}}\nserver: {secret}\nmetrics: {{port: {secret}, namespace: {secret}}}\n"
        f"registry: {{url: 'redis://:{secret}@h'}}\n"
        f"upstream: {{client_key: {{a: {secret}}}, deny_hosts: ['{secret}/x'],\n"
        f"  credentials: {{good: {{bearer_env: '{secret}', bearer: {secret}}}}}}}\n"
        f"log: {{level: {secret}}}\n"
    )
    names = [name for name in field_names() if not name.startswith("upstream.c") and "host" not in name]
    wrong = {variable(name): f"\t{secret} {secret}\x00" for name in names}
    assert not any(secret in problem for problem in problems(path, VITALGATE_SECRET=secret, **wrong))


def test_no_problem_holds_a_value_in_broken_yaml(file) -> None:
    for text in ("token: 'S3CRET", "token: *S3CRET", "token: !S3CRET x", "token: S3CRET: x", "%S3CRET\n"):
        assert not any("S3CRET" in problem for problem in problems(file(text)))


def test_a_password_is_masked_when_settings_are_shown() -> None:
    settings = Settings()
    secret = settings.registry.model_copy(update={"url": "redis://user:pass@host/0"})
    data = shown(settings.model_copy(update={"registry": secret}))
    assert data["registry"]["url"] == "redis://user:***@host/0"
    assert json.loads(json.dumps(data))["a2a"]["trusted_origins"] == ["auto"]


def test_public_url_and_origins_are_kept_in_one_form(file) -> None:
    path = file("server: {public_url: 'HTTPS://GW.example:443/base/'}\na2a: {trusted_origins: ['HTTP://A:80']}\n")
    settings = load(path, HOME).settings
    assert settings.server.public_url == "https://gw.example/base"
    assert settings.a2a.trusted_origins == ("http://a",)
