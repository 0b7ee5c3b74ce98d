"""The commands `vitalgate ping|doctor|check|handoff`; everything heavy is imported when one of them runs.

Whatever goes wrong with the invocation, the file or the output exits 6 with one line on standard error and
nothing on standard output (health contract 1).
"""

# ruff: noqa: D301 - the \b in docstrings is click's mark for "do not wrap": a real backspace
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import rich_click as click
from click.exceptions import Exit

from healthcheck.errors import ToolFailed

TOOL_FAILED = 6
_FORMATS = ("terminal", "json", "yaml", "junit", "prometheus")
_EXITS = (
    "Exit codes: 0 healthy, 1 degraded, 2 unhealthy, 3 unreachable, 4 misconfigured, 5 unknown, 6 the tool failed."
)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class HealthCommand(click.RichCommand):
    """A command whose failures of its own are one line and exit code 6."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Parse the command line."""
        try:
            return super().make_context(*arguments, **options)
        except click.UsageError as error:
            _fail(f"{error.format_message().rstrip('.')}; see vitalgate {self.name} --help")

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _fail(f"{error.format_message().rstrip('.')}; see vitalgate {self.name} --help")
        except ToolFailed as error:
            _fail(str(error))
        except (Exit, click.Abort):
            raise
        except Exception as error:  # the edge: a fault of ours is one line too, and holds no text of others
            _fail(f"internal fault: {type(error).__name__}")


def _fail(line: str) -> NoReturn:
    from healthcheck.text import printable

    click.echo(f"vitalgate: {printable(line)}", err=True)
    sys.exit(TOOL_FAILED)


def _options(*options: Decorator) -> Decorator:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return add


_FORMAT = click.option(
    "--format", "form", type=click.Choice(_FORMATS), default="terminal", show_default=True, help="Of the result."
)
_CA_FILE = click.option(
    "--ca-file", metavar="FILE", help="PEM file of a certificate authority that is trusted in addition."
)
_TARGET = _options(
    click.option("--bearer-env", metavar="NAME", help="Environment variable that holds the bearer token."),
    click.option(
        "--protocol-version",
        type=click.Choice(("1.0", "0.3.0")),
        help="A2A version to ask for (a2a; default 1.0).",
    ),
    click.option("--card-url", metavar="URL", help="Where the agent card is (a2a), on the endpoint's origin."),
    click.option("--require-skill", metavar="ID", multiple=True, help="A skill that must be offered (a2a)."),
    click.option("--require-capability", metavar="NAME", multiple=True, help="A capability that must be offered."),
    click.option("--check", "checks", metavar="CHECK", multiple=True, help="Only this check; may be repeated."),
    click.option(
        "--timeout-ms", type=click.IntRange(1, 300_000), help="Deadline of every attempt (default 5000)."
    ),
    click.option("--retries", type=click.IntRange(0, 3), help="Further attempts while unreachable (default 0)."),
    click.option("--latency-ms", type=click.FloatRange(0), help="Slower than this is DEGRADED."),
    _CA_FILE,
    _FORMAT,
)


_TYPES_OF = {
    "protocol_version": ("a2a",),
    "card_url": ("a2a",),
    "require_skill": ("a2a",),
    "require_capability": ("a2a", "agent", "multi-agent"),
}


def _target(kind: str, endpoint: str, given: dict[str, Any]) -> dict[str, Any]:
    """The target that a command line describes, as a file would write it."""
    for name, types in _TYPES_OF.items():
        if given[name] and kind not in types:
            raise click.UsageError(f"--{name.replace('_', '-')} is for type {', '.join(types)}")
    if "functional" in given["checks"]:
        raise click.UsageError("--check functional sends a real message: declare that in a file")
    target: dict[str, Any] = {"type": kind, "endpoint": endpoint}
    for name in ("timeout_ms", "retries"):
        if given[name] is not None:
            target[name] = given[name]
    if given["bearer_env"] is not None:
        target["auth"] = {"bearer_env": given["bearer_env"]}
    if given["latency_ms"] is not None:
        target["thresholds"] = {"latency_ms": given["latency_ms"]}
    if given["checks"]:
        target["checks"] = list(given["checks"])
    options = {
        "protocol_version": given["protocol_version"],
        "card_url": given["card_url"],
        "required_skills": list(given["require_skill"]),
        "required_capabilities": list(given["require_capability"]),
    }
    chosen = {name: value for name, value in options.items() if value}
    if chosen:
        target["agent" if kind in {"agent", "multi-agent"} else "a2a"] = chosen
    return target


@click.command(cls=HealthCommand, epilog=_EXITS)
@click.argument("kind", metavar="TYPE")
@click.argument("endpoint")
@_TARGET
def ping(kind: str, endpoint: str, form: str, ca_file: str | None, **given: Any) -> None:
    """Check one endpoint and say how it is.

    TYPE is one of a2a, agent, multi-agent, http, api, gateway, router.

    \b
    Examples:
      vitalgate ping a2a https://agent.example/rpc
      vitalgate ping a2a http://127.0.0.1:9000/ --protocol-version 0.3.0
      vitalgate ping a2a https://agent.example/ --bearer-env AGENT_TOKEN
    """
    from healthcheck import command

    config = command.single(_target(kind, endpoint, given))
    sys.exit(command.run(config, command.Output(form), ca_file))


@click.command(cls=HealthCommand, epilog=_EXITS)
@click.argument("what", nargs=-1, required=True, metavar="TYPE ENDPOINT | FILE")
@_TARGET
def doctor(what: tuple[str, ...], form: str, ca_file: str | None, **given: Any) -> None:
    """Check and explain: what each finding means, its likely cause, and what to try next.

    With one argument, that is a configuration file; its targets bring their own options.

    \b
    Examples:
      vitalgate doctor a2a https://agent.example/rpc
      vitalgate doctor agents.yaml
    """
    from healthcheck import command

    if len(what) > 2:
        raise click.UsageError("expected TYPE ENDPOINT, or one FILE")
    if len(what) == 1 and any(value not in (None, ()) for value in given.values()):
        raise click.UsageError("options of a target belong to TYPE ENDPOINT, not to a FILE")
    config = command.single(_target(*what, given)) if len(what) == 2 else command.load_file(what[0])
    sys.exit(command.run(config, command.Output(form, explained=True), ca_file))


@click.command(cls=HealthCommand, epilog=_EXITS)
@click.argument("file")
@click.option("--watch", is_flag=True, help="Check again and again, and redraw; ends with Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Seconds between runs, ±20 %."
)
@click.option("--count", type=click.IntRange(1), help="End after so many runs.")
@_CA_FILE
@_FORMAT
def check(file: str, watch: bool, interval: float, count: int | None, ca_file: str | None, form: str) -> None:
    """Check all targets of a configuration file (`-` for standard input).

    It exits with the status of the worst target; dependencies count through the targets that need them.

    \b
    Examples:
      vitalgate check agents.yaml
      vitalgate check agents.yaml --format junit > health.xml
      vitalgate check agents.yaml --watch --interval 30
    """
    from healthcheck import command

    config = command.load_file(file)
    again = command.Watch(interval, count or 0) if watch or count else None
    sys.exit(command.run(config, command.Output(form, every=False), ca_file, again))


@click.command(
    cls=HealthCommand,
    epilog="Exit codes: 0 may be handed off, or completed; 1 taken, not completed; 2 failed or not understood; "
    "3 unreachable; 4 stopped at a gate; 5 outcome unknown; 6 the tool failed.",
)
@click.option("--card", metavar="FILE|URL", required=True, help="The peer's agent card.")
@click.option("--skill", metavar="ID", required=True, help="The skill that the task needs.")
@click.option("--policy", type=click.Choice(("allowlist", "advertised")), default="allowlist", show_default=True)
@click.option("--origin", "origins", metavar="ORIGIN", multiple=True, help="An allowed origin; may be repeated.")
@click.option("--credential", metavar="ORIGIN=ENV", help="A bearer token, and the origin it belongs to.")
@click.option("--credential-scope", type=click.Choice(("bound", "broad")), default="bound", show_default=True)
@click.option("--public", is_flag=True, help="Admit a card that asks for no credential.")
@click.option("--protocol-version", type=click.Choice(("1.0", "0.3.0")), default="1.0", show_default=True)
@click.option("--input-mode", default="text/plain", show_default=True, help="Media type the skill must take.")
@click.option("--output-mode", default="text/plain", show_default=True, help="Media type it must give.")
@click.option("--send", metavar="TEXT", help="Really hand the task over; without it, a dry run.")
@click.option("--deadline-ms", type=click.IntRange(1, 300_000), default=30_000, show_default=True)
@_CA_FILE
@click.option("--format", "form", type=click.Choice(("terminal", "json")), default="terminal", show_default=True)
def handoff(card: str, ca_file: str | None, form: str, deadline_ms: int, **given: Any) -> None:
    """May this peer be handed this task? Six gates, before anything is sent.

    Without --send it is a dry run. What each gate wants and what may stop it: docs/handoff.md.

    \b
    Examples:
      vitalgate handoff --card card.json --skill echo --public \\
          --origin https://agent.example
      vitalgate handoff --card card.json --skill echo --send "hello" \\
          --origin https://agent.example \\
          --credential https://agent.example=AGENT_TOKEN
    """
    from healthcheck import handoff_command

    order = handoff_command.Order(card, _question(given), deadline_ms, ca_file, form)
    sys.exit(handoff_command.run(order))


def _question(given: dict[str, Any]) -> Any:
    from healthcheck.card import media_type
    from healthcheck.handoff import Question

    modes = []
    for name in ("input_mode", "output_mode"):
        try:
            modes.append(media_type(given[name]))
        except ValueError:
            raise click.UsageError(f"--{name.replace('_', '-')} is no media type such as text/plain") from None
    return Question(
        skill=given["skill"],
        policy=given["policy"],
        origins=tuple(_origin(text, "--origin") for text in given["origins"]),
        credential=_credential(given["credential"]),
        scope=given["credential_scope"],
        public=given["public"],
        version=given["protocol_version"],
        text=given["send"],
        input_mode=modes[0],
        output_mode=modes[1],
    )


def _credential(text: str | None) -> Any:
    if text is None:
        return None
    origin, equals, variable = text.rpartition("=")
    if not equals or not variable:
        raise click.UsageError("--credential is ORIGIN=ENV, such as https://agent.example=AGENT_TOKEN")
    return _origin(origin, "--credential"), variable


def _origin(text: str, option: str) -> Any:
    from healthcheck.url import UrlError, parse_url

    try:
        url = parse_url(text)
    except UrlError:
        raise click.UsageError(f"{option} takes an origin such as https://agent.example") from None
    if url.target != "/":
        raise click.UsageError(f"{option} takes an origin, without a path")
    return url.origin
