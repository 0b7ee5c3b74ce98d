"""The command `vitalgate`: contract 4 (serve, config), and one clear line for whatever stops a start."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from gateway import cli
from gateway.settings import Settings, load
from gateway.worker_count import quota, worker_count
from tests.fakes.program import clean_environment

COMMAND = Path(sys.executable).with_name("vitalgate")


def run(*arguments: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the installed command as a shell would."""
    environ = {**clean_environment(), "HOME": str(home), **variables}
    return subprocess.run(
        [COMMAND, *arguments],
        env=environ,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )


def one_line(result: subprocess.CompletedProcess[str], code: int) -> str:
    """The only line on stderr, without the command's name; nothing stands on stdout."""
    assert result.returncode == code, result
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("vitalgate: ")


def test_version(tmp_path: Path) -> None:
    result = run("version", home=tmp_path)
    assert (result.returncode, result.stdout) == (0, "vitalgate 0.1.0\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["bogus"], "No such command 'bogus'; see vitalgate --help"),
        (["serve", "--nope"], "No such option"),  # the rest is click's, and differs between its versions
        (["serve", "--port", "70000"], "Invalid value for '--port': 70000 is not in the range 0<=x<=65535; see"),
        (["serve", "--demo", "--port", "0"], "--demo needs a port to find the gateway at; 0 lets the system"),
        (["config", "check"], "Missing argument 'FILE'; see vitalgate config check --help"),
        (
            ["config", "show", "--format", "xml"],
            "Invalid value for '--format': 'xml' is not one of 'yaml', 'json'",
        ),
        (["demo", "--gateway", "gateway:9090"], "Invalid value for --gateway: "),
        (["demo", "--id", "Demo"], "Invalid value for --id: must be 2-128 of a-z, 0-9 and inner hyphens"),
        *(
            (["serve", "--workers", text], f"--workers {text}: must be a number from 1 to 256, or auto; see")
            for text in ("0", "257", "two", "1.5", "9" * 5000)
        ),
        (
            ["serve", "--workers", "2"],
            "--workers 2: several processes cannot share a registry in a SQLite file: set registry.url to redis://",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_2(tmp_path: Path, arguments: list[str], line: str) -> None:
    assert one_line(run(*arguments, home=tmp_path), 2).startswith(line)


def test_without_a_command_the_help_is_shown(tmp_path: Path) -> None:
    result = run(home=tmp_path)
    assert "vitalgate serve --demo" in result.stdout + result.stderr


@pytest.mark.parametrize("command", [["serve"], ["config", "show"]])
def test_every_mistake_in_the_configuration_is_a_line_and_1(tmp_path: Path, command: list[str]) -> None:
    """Contract 4."""
    (tmp_path / "it.yaml").write_text("a2a: {max_agents: -1, enable: S3CRET}\nregistry: {key_prefx: x}\n")
    result = run(*command, "--config", "it.yaml", home=tmp_path, VITALGATE_LOG__LEVEL="S3CRET")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [
        "vitalgate: it.yaml:1: a2a.enable: must be true or false",
        "vitalgate: it.yaml:1: a2a.max_agents: must be greater than or equal to 0",
        "vitalgate: it.yaml:2: registry.key_prefx: unknown setting; did you mean registry.key_prefix?",
        "vitalgate: VITALGATE_LOG__LEVEL: log.level: must be 'debug', 'info', 'warning' or 'error'",
    ]


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    line = one_line(run("serve", home=tmp_path, VITALGATE_CONFIG="missing.yaml"), 1)
    assert line == "missing.yaml: cannot be read: No such file or directory"


def test_check_judges_the_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text("log: {level: debug}\n")
    result = run("config", "check", "it.yaml", home=tmp_path, VITALGATE_LOG__LEVEL="wrong")
    assert (result.returncode, result.stdout, result.stderr) == (0, "it.yaml: fine\n", "")
    (tmp_path / "it.yaml").write_text("log: {level: loud}\n")
    line = one_line(run("config", "check", "it.yaml", home=tmp_path), 1)
    assert line == "it.yaml:1: log.level: must be 'debug', 'info', 'warning' or 'error'"
    assert os.listdir(tmp_path) == ["it.yaml"]


def test_check_warns_of_what_is_not_here(tmp_path: Path) -> None:
    """Contract 6.1, 6.3, 6.4: the file is right, and `serve` would not do with it here."""

    def served() -> str:
        arguments = ("serve", "--config", "it.yaml", "--port", "0")
        return one_line(run(*arguments, home=tmp_path, VITALGATE_METRICS__PORT="0"), 3)

    (tmp_path / "it.yaml").write_text(
        "auth: {enable: true, secret_env: JWT_SECRET}\n"
        "upstream: {ca_file: ca.pem, credentials: {weather: {bearer_env: WEATHER_TOKEN}}}\n"
    )
    result = run("config", "check", "it.yaml", home=tmp_path, WEATHER_TOKEN="S3 CRET")
    assert (result.returncode, result.stdout) == (0, "it.yaml: fine\n")
    secret = "auth.secret_env: JWT_SECRET: not set, or empty; the secret belongs there"
    files = "upstream.ca_file: no such file or directory"
    assert result.stderr.splitlines() == [
        f"vitalgate: warning: {secret} (serve would not start here)",
        f"vitalgate: warning: {files} (serve would not start here)",
        "vitalgate: warning: upstream.credentials.weather: WEATHER_TOKEN: not set, or not a token "
        "(calls to this agent would fail here)",
    ]
    assert served() in (secret, files)

    (tmp_path / "it.yaml").write_text("auth: {enable: true, public_key_file: key.pem, audience: a}\n")
    for key, words in ((None, "no such file or directory"), ("x", "the file holds no public key in PEM form")):
        if key is not None:
            (tmp_path / "key.pem").write_text(key)
        result = run("config", "check", "it.yaml", home=tmp_path)
        assert (result.returncode, result.stdout) == (0, "it.yaml: fine\n")
        said = f"auth.public_key_file: {words}"
        assert result.stderr == f"vitalgate: warning: {said} (serve would not start here)\n"
        assert served() == said


def test_check_is_silent_where_nothing_is_missing(tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(
        "auth: {enable: true, secret_env: JWT_SECRET}\n"
        "upstream: {credentials: {weather: {bearer_env: WEATHER_TOKEN}}}\n"
    )
    result = run("config", "check", "it.yaml", home=tmp_path, JWT_SECRET="x" * 32, WEATHER_TOKEN="S3CRET")
    assert (result.returncode, result.stdout, result.stderr) == (0, "it.yaml: fine\n", "")


def test_show_tells_where_each_value_came_from(tmp_path: Path) -> None:
    """Contract 4."""
    (tmp_path / "it.yaml").write_text("upstream:\n  credentials:\n    one:\n      bearer_env: TOKEN_ONE\n")
    variables = {
        "CONNECTORSA2_A_MAX_AGENTS": "7",
        "VITALGATE_SERVER__ALLOWED_HOSTS": "a.example, b.example",
        "TOKEN_ONE": "S3CRET",
    }
    result = run("config", "show", "--config", "it.yaml", home=tmp_path, **variables)
    assert result.returncode == 0, result
    lines = result.stdout.splitlines()
    assert "  max_agents: 7  # CONNECTORSA2_A_MAX_AGENTS" in lines
    assert "  allowed_hosts: [a.example, b.example]  # VITALGATE_SERVER__ALLOWED_HOSTS" in lines
    assert "    one: {bearer_env: TOKEN_ONE}  # it.yaml:3" in lines
    assert "  agent_ttl_seconds: 300  # default" in lines
    assert "S3CRET" not in result.stdout

    as_json = json.loads(
        run("config", "show", "--config", "it.yaml", "--format", "json", home=tmp_path, **variables).stdout
    )
    assert as_json["settings"] == yaml.safe_load(result.stdout)
    assert as_json["origins"]["a2a.max_agents"] == "CONNECTORSA2_A_MAX_AGENTS"


def test_what_show_prints_is_a_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "it.yaml"
    file.write_text(
        "server: {platform_name: 'a: #b \"c\" ü', public_url: 'https://gw.example'}\nlog: {level: error}\n"
    )
    shown = run("config", "show", "--config", "it.yaml", home=tmp_path)
    before = load(str(file), {"HOME": str(tmp_path)}).settings
    file.write_text(shown.stdout)
    assert load(str(file), {"HOME": str(tmp_path)}).settings == before


@pytest.mark.parametrize("listener", ["server", "metrics"])
def test_a_port_in_use_is_one_line_and_3(tmp_path: Path, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        free = {"VITALGATE_SERVER__PORT": "0", "VITALGATE_METRICS__PORT": "0"}
        line = one_line(
            run("serve", home=tmp_path, **free | {f"VITALGATE_{listener.upper()}__PORT": str(port)}), 3
        )
    assert str(port) in line
    assert "in use" in line


@pytest.mark.parametrize(
    ("variable", "text", "named"),
    [
        ("VITALGATE_REGISTRY__URL", "sqlite:////dev/null/registry.db", "/dev/null"),
        ("VITALGATE_REGISTRY__URL", "sqlite:////proc/registry.db", "/proc"),
        ("VITALGATE_REGISTRY__URL", "sqlite:///~nosuchuser/registry.db", "~nosuchuser/registry.db"),
        ("VITALGATE_UPSTREAM__CA_FILE", "/nowhere/ca.pem", "upstream.ca_file: no such file"),
        ("VITALGATE_UPSTREAM__CLIENT_CERT", "/dev/null", "upstream.client_cert or"),
        ("VITALGATE_SERVER__HOST", "192.0.2.1", "192.0.2.1"),
        ("VITALGATE_SERVER__HOST", "nowhere.invalid", "nowhere.invalid"),
    ],
)
def test_what_stops_a_start_is_one_line_and_3(tmp_path: Path, variable: str, text: str, named: str) -> None:
    free = {"VITALGATE_SERVER__PORT": "0", "VITALGATE_METRICS__PORT": "0"}
    assert named in one_line(run("serve", home=tmp_path, **free | {variable: text}), 3)


def test_the_demos_own_start_errors_are_one_line_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = one_line(run("demo", "--port", port, home=tmp_path), 3)
    assert line == f"the demo agent cannot listen on 127.0.0.1:{port}: address already in use"


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    """`--help` takes at most a third of a second: performance 2."""
    program = (
        "import sys, gateway.cli\n"
        "try: gateway.cli.main(['serve', '--help'])\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stderr.split()
    assert not {"litestar", "uvicorn", "pydantic", "httpx", "msgspec", "asyncio", "yaml"} & set(loaded)


@pytest.mark.parametrize("command", [[], ["serve"], ["config"], ["config", "show"], ["config", "check"], ["demo"]])
def test_every_command_explains_itself(command: list[str]) -> None:
    result = CliRunner().invoke(cli.cli, [*command, "-h"], prog_name="vitalgate")
    assert result.exit_code == 0
    assert "Examples:" in result.output or command == ["config"]


def test_the_help_names_every_command_as_it_is_called() -> None:
    """The name of the function that implements it is nobody's business."""
    context = click.Context(cli.cli)
    names = cli.cli.list_commands(context)
    found = [cli.cli.get_command(context, name) for name in names]
    assert [command.name for command in found if command is not None] == names


def test_commands_of_other_modules_are_imported_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "ELSEWHERE", {"elsewhere": "tests.test_cli:elsewhere"})
    assert "Lives elsewhere." in CliRunner().invoke(cli.cli, ["--help"]).output
    assert CliRunner().invoke(cli.cli, ["elsewhere"]).output == "here\n"


@click.command()
def elsewhere() -> None:
    """Lives elsewhere."""
    click.echo("here")


def _on_a_terminal(tmp_path: Path, **variables: str) -> bytes:
    """What `vitalgate --help` writes to a terminal."""
    master, slave = pty.openpty()
    environ = {**clean_environment(), "HOME": str(tmp_path), "TERM": "xterm-256color", **variables}
    process = subprocess.Popen([COMMAND, "--help"], env=environ, stdout=slave, stderr=slave, stdin=slave)
    os.close(slave)
    output = b""
    try:
        while data := os.read(master, 65536):
            output += data
    except OSError:  # how Linux reports that the other side has closed
        pass
    finally:
        os.close(master)
        process.wait(10)
    return output


def test_colours_are_for_terminals_and_for_those_who_want_them(tmp_path: Path) -> None:
    colour = b"\x1b["
    assert colour in _on_a_terminal(tmp_path)
    assert b"\x1b[3" not in _on_a_terminal(tmp_path, NO_COLOR="1")
    assert "\x1b[" not in run("--help", home=tmp_path, TERM="xterm-256color").stdout


@contextmanager
def reserved_port() -> Iterator[int]:
    """A free port that nobody else gets; whoever sets SO_REUSEADDR, as servers do, can listen on it."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("closed", ["", "2>&-", "<&- 2>&-"])
def test_serve_with_demo_prints_a_command_that_works_when_pasted(tmp_path: Path, closed: str) -> None:
    """What `make run` does; the registration goes into the SQLite file of contract 4's default.

    Without a stderr nobody reads the log; it must go nowhere, least of all into that file.
    """
    with reserved_port() as port:
        process = subprocess.Popen(
            ["sh", "-c", f'exec "$0" "$@" {closed}', COMMAND, "serve", "--demo", "--port", str(port)],
            env={**clean_environment(), "HOME": str(tmp_path), "VITALGATE_METRICS__PORT": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("curl "))
            answer = subprocess.run(["sh", "-c", line], capture_output=True, timeout=20, check=True).stdout
            assert json.loads(answer)["result"]["artifacts"][0]["parts"] == [{"kind": "text", "text": "hello"}]
            assert (tmp_path / ".local/state/vitalgate/registry.db").exists()
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.communicate()


def test_several_workers_need_a_shared_registry_and_a_metrics_port(tmp_path: Path) -> None:
    def line(**variables: str) -> str:
        return one_line(run("serve", "--workers", "2", home=tmp_path, **variables), 2)

    assert "cannot share a registry in memory: " in line(VITALGATE_REGISTRY__URL="memory://")
    shared = {"VITALGATE_REGISTRY__URL": "redis://:secret@127.0.0.1:1"}
    said = line(VITALGATE_METRICS__PORT="0", **shared)
    assert said.startswith(
        "--workers 2: the metrics of several processes need a port of their own: set metrics.port"
    )
    assert "secret" not in said


def test_one_worker_is_one_process_over_any_registry() -> None:
    settings = Settings()
    assert worker_count("1", settings) == worker_count("001", settings) == 1


def test_auto_is_one_worker_per_core() -> None:
    settings = Settings(registry={"url": "redis://127.0.0.1:1"})
    assert 1 <= worker_count("auto", settings) <= len(os.sched_getaffinity(0))
    read = {
        text: quota(text) for text in ("max 100000\n", "200000 100000\n", "250000 100000", "1000 100000", "300000")
    }
    assert list(read.values()) == [256, 2, 3, 1, 3]
