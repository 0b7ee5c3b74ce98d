"""The command `vitalgate`. Whatever is heavy is imported by the command that needs it: `--help` must be quick."""

# ruff: noqa: D301 - the \b in docstrings is click's mark for "do not wrap": a real backspace
from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import rich_click as click

if TYPE_CHECKING:
    from gateway.settings import Loaded, Settings

BAD_CONFIGURATION = 1
USAGE = 2
CANNOT_START = 3
INTERRUPTED = 130
_A_DAY = 86400

ELSEWHERE: Mapping[str, str] = {
    "ping": "healthcheck.cli:ping",
    "doctor": "healthcheck.cli:doctor",
    "check": "healthcheck.cli:check",
    "handoff": "healthcheck.cli:handoff",
    "explain": "gateway.explain:command",
    "agents": "gateway.operator.commands:agents",
    "send": "gateway.operator.commands:send",
    "stream": "gateway.operator.commands:stream",
    "nodes": "gateway.operator.commands:nodes",
    "reload": "gateway.operator.commands:reload",
    "completion": "gateway.operator.commands:completion",
}
"""Commands that live in other modules, as "module:command"; imported when they are asked for."""

_CONFIG_HELP = "YAML file with the settings; without it, the file that VITALGATE_CONFIG names, if any."


class LazyGroup(click.RichGroup):
    """A group whose commands may be names in `ELSEWHERE`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order in which they were defined."""
        return [*self.commands, *ELSEWHERE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported if need be."""
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, _, name = ELSEWHERE[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "rich_help_config": {"text_paragraph_linebreaks": "\n\n"},
    },
    epilog="Exit codes: 0 success, 1 wrong configuration, 2 wrong command line, 3 cannot start. "
    "Commands with others say so.",
)
def cli() -> None:
    """An A2A (Agent2Agent) gateway with built-in health.

    Agents register over REST; clients call them at /a2a/{agent_id}.

    \b
    Examples:
      vitalgate serve --demo           a gateway with an agent to try it on
      vitalgate serve --config FILE    a gateway of your own
      vitalgate config check FILE      is this file right?
      vitalgate agents list            who is registered, and how they are
      vitalgate send AGENT TEXT        a message through the gateway
    """


@cli.command()
@click.option("--config", metavar="FILE", help=_CONFIG_HELP)
@click.option("--host", help="Address to listen on, whatever the configuration says.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes any free one.")
@click.option("--workers", metavar="N", default="1", help="Processes that share the port; auto: one per core.")
@click.option("--demo", is_flag=True, help="Also run the demo agent and print a command that calls it.")
def serve(config: str | None, host: str | None, port: int | None, workers: str, demo: bool) -> None:
    """Run the gateway until SIGTERM or SIGINT.

    Open calls may finish (server.drain_seconds); a second signal ends it at once.
    Several workers need a registry that they can share: Redis or Valkey.

    \b
    Examples:
      vitalgate serve
      vitalgate serve --demo
      vitalgate serve --config /etc/vitalgate.yaml --host 0.0.0.0
      VITALGATE_A2A__AGENT_TTL_SECONDS=60 vitalgate serve
      VITALGATE_REGISTRY__URL=redis://127.0.0.1 vitalgate serve --workers auto
    """
    options = {"server.host": host, "server.port": port}
    given = {name: value for name, value in options.items() if value is not None}
    settings = _load(config, os.environ, given).settings
    if demo and settings.auth.enable and settings.auth.secret_env is None:
        raise click.UsageError("--demo has no token here; run vitalgate demo --token-env NAME beside it")
    if demo and settings.server.port == 0:
        raise click.UsageError("--demo needs a port to find the gateway at; 0 lets the system choose one")
    from gateway import server
    from gateway.worker_count import worker_count
    from registry.errors import StoreError

    try:
        count = worker_count(workers, settings)
    except ValueError as error:
        raise click.UsageError(f"--workers {workers}: {error}") from None
    with _start_errors(server.BindError, server.StartError, StoreError):
        beside = _demo_beside(settings) if demo else None
        if count == 1:
            from gateway import app
            from gateway.settings import load

            app.serve(settings, reread=lambda: load(config, os.environ, given, again=True).settings, beside=beside)
        else:
            from gateway.workers import Source
            from gateway.workers import serve as serve_all

            sys.exit(serve_all(settings, Source(config, given), count, beside))


@cli.group(name="config", cls=click.RichGroup)
def config_group() -> None:
    """Show or check the configuration."""


@config_group.command()
@click.option("--config", metavar="FILE", help=_CONFIG_HELP)
@click.option("--format", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def show(config: str | None, form: str) -> None:
    """Print the effective configuration and where each value came from; secrets are masked.

    The YAML form is a configuration file itself; the JSON form has the members settings and origins.

    \b
    Examples:
      vitalgate config show
      vitalgate config show --config FILE --format json
    """
    loaded = _load(config, os.environ)
    click.echo(_as_json(loaded) if form == "json" else _as_yaml(loaded))


@config_group.command()
@click.argument("file")
def check(file: str) -> None:
    """Judge one file, whatever else is set, without starting anything.

    Every mistake is named on a line of its own, on standard error. What the file names and is not here (a variable
    with a secret, a file with a key) is a warning: the machine that checks it need not hold the secrets.

    \b
    Examples:
      vitalgate config check gateway.yaml && echo fine
    """
    settings = _load(file, {}).settings
    from gateway.surroundings import lacking

    for line in lacking(settings, os.environ):
        click.echo(f"vitalgate: warning: {line}", err=True)
    click.echo(f"{file}: fine")


@cli.command()
@click.option("--gateway", default="http://127.0.0.1:9090", show_default=True, help="The gateway's base URL.")
@click.option("--id", "agent_id", default="demo", show_default=True, help="Agent id to register as.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address the agent listens on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Its port; by default any free one.")
@click.option("--token-env", metavar="NAME", help="Environment variable with its token, where one is asked for.")
def demo(gateway: str, agent_id: str, host: str, port: int, token_env: str | None) -> None:
    """Run a small agent that registers itself and answers with what it was told.

    It speaks A2A 0.3 and 1.0, sends heartbeats, registers again when the gateway has forgotten it, and
    deregisters at its end.

    \b
    Examples:
      vitalgate demo
      vitalgate demo --gateway http://gateway.example:9090 --id echo-2
    """
    from gateway import demo as agent

    gateway, agent_id = _base_url(gateway), _agent_id(agent_id)
    shown = os.environ.get(token_env, "") if token_env else ""
    if token_env and not shown:
        raise click.UsageError(f"{token_env} is not set")
    with _start_errors():
        agent.run(agent.Demo(agent_id, gateway, host, port, _version(), shown), click.echo)


@cli.command()
@click.argument("principal")
@click.option("--config", metavar="FILE", help=_CONFIG_HELP)
@click.option("--key", metavar="FILE", help="PEM file of the private key, where the gateway knows the public one.")
@click.option("--kid", help="Id of that key in the key set.")
@click.option("--scope", help="Scope values, with blanks between.")
@click.option("--seconds", type=click.IntRange(1), default=3600, show_default=True, help="How long it is good.")
def token(
    principal: str, config: str | None, key: str | None, kid: str | None, scope: str | None, seconds: int
) -> None:
    """Print a token for PRINCIPAL that a gateway with this configuration accepts. For development.

    It is signed with the secret that auth.secret_env names, or with --key, and bears the issuer, audience and
    principal claim of the configuration. Whoever holds it is PRINCIPAL: it goes to standard output only.

    \b
    Examples:
      vitalgate token alice --config gateway.yaml
      curl -H "Authorization: Bearer $(vitalgate token alice)" http://127.0.0.1:9090/agents
      vitalgate token ci --key private.pem --kid 2026-01 --scope "agents:write"
    """
    from gateway.keys import UnusableKeyError

    settings = _load(config, os.environ).settings
    try:
        click.echo(_minted(settings, principal, key, kid, scope, seconds))
    except (UnusableKeyError, OSError) as error:
        _fail(CANNOT_START, f"{key}: {getattr(error, 'strerror', None) or error}")


def _minted(
    settings: Settings, principal: str, key: str | None, kid: str | None, scope: str | None, seconds: int
) -> str:
    from gateway import tokens

    auth = settings.auth
    said = tokens.claims(
        principal,
        claim=auth.principal_claim,
        seconds=seconds,
        issuer=auth.issuer,
        audience=auth.audience[0] if auth.audience else None,
        scope=scope,
    )
    if key is not None:
        with open(key, "rb") as file:
            return tokens.sign_with_key(said, file.read(1024 * 1024), kid)
    secret = os.environ.get(auth.secret_env or "", "")
    if not secret:
        missing = f"set {auth.secret_env}" if auth.secret_env else "give a --config that names auth.secret_env"
        raise click.UsageError(f"nothing to sign with: {missing}, or give --key")
    fitting = [name for name in auth.algorithms if name.startswith("HS")]
    return tokens.sign_with_secret(said, secret, fitting[0] if fitting else "HS256")


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(f"vitalgate {_version()}")


def _version() -> str:
    from importlib import metadata

    return metadata.version("vitalgate")


def _load(path: str | None, environ: Mapping[str, str], options: Mapping[str, object] | None = None) -> Loaded:
    from gateway import settings

    try:
        return settings.load(path, environ, options)
    except settings.SettingsError as error:
        _fail(BAD_CONFIGURATION, *error.problems)


def _base_url(text: str) -> str:
    from registry.url import parse_url

    try:
        return str(parse_url(text)).rstrip("/")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--gateway") from None


def _agent_id(text: str) -> str:
    from registry.agent import is_agent_id

    if not is_agent_id(text):
        raise click.BadParameter("must be 2-128 of a-z, 0-9 and inner hyphens", param_hint="--id")
    return text


@contextmanager
def _start_errors(*further: type[Exception]) -> Iterator[None]:
    """Turns what stops a start into one line. Anything else is a fault of ours and keeps its traceback."""
    from gateway.errors import StartError

    foreseen: tuple[type[Exception], ...] = (StartError, *further)
    try:
        yield
    except foreseen as error:
        _fail(CANNOT_START, str(error))
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        _fail(CANNOT_START, f"{named}{error.strerror or error}")


@contextmanager
def _demo_beside(settings: Settings) -> Iterator[None]:
    from gateway import demo as agent

    anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - the address to call, not to listen on
    host = anywhere.get(settings.server.host, settings.server.host)
    gateway = f"http://[{host}]:{settings.server.port}" if ":" in host else f"http://{host}:{settings.server.port}"
    shown = _minted(settings, "demo", None, None, None, _A_DAY) if settings.auth.enable else ""
    with agent.beside(agent.Demo("demo", gateway, version=_version(), token=shown), click.echo):
        yield


def _fail(code: int, *lines: str) -> NoReturn:
    for line in lines:
        click.echo(f"vitalgate: {line}", err=True)
    sys.exit(code)


def _as_json(loaded: Loaded) -> str:
    import json

    from gateway import settings

    data = {"settings": settings.shown(loaded.settings), "origins": dict(loaded.origins)}
    return json.dumps(data, indent=2, ensure_ascii=False)


def _as_yaml(loaded: Loaded) -> str:
    from gateway import settings

    lines = []
    for section, values in settings.shown(loaded.settings).items():
        lines.append(f"{section}:")
        for key, value in values.items():
            lines += _yaml_lines(loaded.origins, f"{section}.{key}", key, value)
    return "\n".join(lines)


def _yaml_lines(origins: Mapping[str, str], name: str, key: str, value: object) -> Iterator[str]:
    """A setting with its origin as a comment; a mapping's entries one by one, because each has its own."""
    if isinstance(value, dict) and value:
        yield f"  {key}:"
        for inner, entry in value.items():
            yield f"    {inner}: {_flow(entry)}  # {origins[f'{name}.{inner}']}"
    else:
        yield f"  {key}: {_flow(value)}  # {origins[name]}"


def _flow(value: object) -> str:
    import yaml

    text: str = yaml.safe_dump([value], default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.strip()[1:-1]


def _open_standard_streams() -> None:
    """Gives what whoever started us has closed (`2>&-`) to /dev/null.

    Otherwise a socket or the registry file would get its number, and the lines that are written to it. The log
    goes nowhere then; a command that must read or print still finds `sys.stdin` or `sys.stdout` missing.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as we live


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point: a mistake on the command line becomes one line instead of click's box."""
    _open_standard_streams()
    try:
        sys.exit(cli.main(arguments, prog_name="vitalgate", standalone_mode=False))
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "vitalgate"
        _fail(USAGE, f"{error.format_message().rstrip('.')}; see {command} --help")
    except click.Abort:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
