"""The commands that operate a running gateway, as click sees them; what they do is imported when one runs."""

# ruff: noqa: D301 - the \b in docstrings is click's mark for "do not wrap": a real backspace
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import rich_click as click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

_EXITS = "Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 authentication, 5 connection, 6 timeout."
_COMPLETIONS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_STATUSES = ("HEALTHY", "DEGRADED", "UNHEALTHY", "UNREACHABLE", "MISCONFIGURED", "UNKNOWN")
_REST_SECONDS = 10
_CHECK_SECONDS = 75
_CALL_SECONDS = 310
"""Somewhat more than a gateway gives an agent by default."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class OperatorCommand(click.RichCommand):
    """A command whose failures are lines on standard error, and an exit code that says of which kind."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        from gateway.operator import output
        from gateway.operator.failures import BROKEN_PIPE, INTERRUPTED, USAGE, Failed

        try:
            return super().invoke(ctx)
        except Failed as error:
            for line in error.lines:
                output.say(f"vitalgate: {line}")
            if error.code == USAGE:
                output.say(f"vitalgate: see {ctx.command_path} --help")
            sys.exit(error.code)
        except BrokenPipeError:
            output.silence()
            sys.exit(BROKEN_PIPE)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


def _options(*options: Decorator) -> Decorator:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _connecting(seconds: float | None) -> Decorator:
    """The options of every command that asks a gateway."""
    return _options(
        click.option("--url", help="The gateway's base URL (VITALGATE_URL; else http://127.0.0.1:9090)."),
        click.option(
            "--token", help="Token to show (VITALGATE_TOKEN). Other users may see it in the process list."
        ),
        click.option("--token-file", metavar="FILE", help="File that holds the token (VITALGATE_TOKEN_FILE)."),
        click.option("--ca-file", metavar="FILE", help="PEM file of an authority to trust in addition."),
        click.option(
            "--timeout",
            type=click.FloatRange(0, min_open=True),
            default=seconds,
            show_default=seconds is not None,
            metavar="SECONDS",
            help="Deadline of the whole command.",
        ),
        click.option("--json", "as_json", is_flag=True, help="JSON for scripts, as the gateway gives it."),
    )


def _complete_agents(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from gateway.operator.completion import agent_ids

    return [CompletionItem(one) for one in agent_ids(ctx.params, incomplete)]


def _well_formed(_ctx: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """Take well-formed ids: nothing else ever becomes a part of a URL."""
    from registry.agent import is_agent_id

    for one in value if isinstance(value, tuple) else (value,):
        if one is not None and not is_agent_id(one):
            raise click.BadParameter("an agent's id is 2-128 of a-z, 0-9 and inner hyphens")
    return value


_AGENT = click.argument("agent", metavar="AGENT", callback=_well_formed, shell_complete=_complete_agents)


def _endpoint(given: dict[str, Any]) -> Any:
    """Take the options of `_connecting` out of what a command was given: the endpoint."""
    from gateway.operator.endpoint import read_endpoint

    return read_endpoint(*(given.pop(name) for name in ("url", "token", "token_file", "ca_file")))


@click.group(cls=click.RichGroup, epilog=_EXITS)
def agents() -> None:
    """Show and change the agents of a running gateway.

    The gateway is that of --url or VITALGATE_URL; docs/commands.md tells more.

    \b
    Examples:
      vitalgate agents list --health UNREACHABLE
      vitalgate agents watch
      vitalgate agents register card.json
    """


@agents.command(name="list", cls=OperatorCommand, epilog=_EXITS)
@click.option(
    "--health",
    type=click.Choice(_STATUSES, case_sensitive=False),
    metavar="STATUS",
    multiple=True,
    help=f"One of {', '.join(_STATUSES)}; may be repeated.",
)
@click.option("--tag", "tags", multiple=True, help="With a skill that bears this tag; may be repeated.")
@click.option("--query", metavar="TEXT", help="With this text in id, name, description or skills.")
@click.option("--limit", type=click.IntRange(1), help="Only the first so many.")
@_connecting(_REST_SECONDS)
def list_agents(
    health: tuple[str, ...], tags: tuple[str, ...], query: str | None, limit: int | None, **given: Any
) -> None:
    """List agents.

    Without options: all of them, in the order in which they registered.

    \b
    Examples:
      vitalgate agents list
      vitalgate agents list --health UNHEALTHY --health UNREACHABLE
      vitalgate agents list --json | jq -r '.[].agent_id'
    """
    from gateway.operator import agents as doing

    params = (
        *(("health", one) for one in health),
        *(("skill_tags", one) for one in tags),
        *([("q", query)] if query else []),
        *([("limit", str(limit))] if limit else []),
    )
    doing.show_list(_endpoint(given), given["timeout"], params, given["as_json"])


@agents.command(cls=OperatorCommand, epilog=_EXITS)
@_AGENT
@_connecting(_REST_SECONDS)
def show(agent: str, **given: Any) -> None:
    """Show one agent as it is registered.

    How it is, and why, is said by: vitalgate agents health AGENT.

    \b
    Examples:
      vitalgate agents show weather
    """
    from gateway.operator import agents as doing

    doing.show_agent(_endpoint(given), given["timeout"], agent, given["as_json"])


@agents.command(cls=OperatorCommand, epilog=_EXITS)
@click.argument("agents", nargs=-1, metavar="[AGENT]...", callback=_well_formed, shell_complete=_complete_agents)
@click.option("--count", type=click.IntRange(1), default=None, help="End after so many events.")
@_connecting(None)
def watch(agents: tuple[str, ...], count: int | None, **given: Any) -> None:
    """Show what changes, until Ctrl-C: a live table on a terminal, a line for each event in a pipe.

    A broken connection is taken up again where it broke. With --timeout it ends after so many seconds.

    \b
    Examples:
      vitalgate agents watch
      vitalgate agents watch weather --json | jq .status
    """
    from gateway.operator import watch as doing

    wanted = doing.Wanted(frozenset(agents), count or 0)
    doing.watch(_endpoint(given), wanted, given["as_json"], given["timeout"])


@agents.command(cls=OperatorCommand, epilog=_EXITS)
@click.argument("file", metavar="FILE")
@click.option("--id", "agent_id", callback=_well_formed, metavar="AGENT", help="Instead of the card's agent_id.")
@click.option("--at", metavar="URL", help="Where the gateway reaches the agent, instead of the card's url.")
@_connecting(_REST_SECONDS)
def register(file: str, agent_id: str | None, at: str | None, **given: Any) -> None:
    """Register the agent card in FILE (`-` for standard input), or replace the one that is there.

    A card that is not as it must be is refused with every violation.

    \b
    Examples:
      vitalgate agents register card.json
      curl -s http://agent:8000/.well-known/agent-card.json |
          vitalgate agents register - --id weather
    """
    from gateway.operator import agents as doing

    doing.register(_endpoint(given), given["timeout"], file, agent_id, at, given["as_json"])


@agents.command(cls=OperatorCommand, epilog=_EXITS)
@_AGENT
@_connecting(_REST_SECONDS)
def deregister(agent: str, **given: Any) -> None:
    """Take an agent out.

    Calls to it get an error from then on; those under way go on. Nothing is asked.

    \b
    Examples:
      vitalgate agents deregister weather
    """
    from gateway.operator import agents as doing

    doing.deregister(_endpoint(given), given["timeout"], agent, given["as_json"])


@agents.command(cls=OperatorCommand, epilog=_EXITS)
@_AGENT
@_connecting(_REST_SECONDS)
def health(agent: str, **given: Any) -> None:
    """Show an agent's health: the last check, what routing made of it, and what to do.

    It is not checked for that; vitalgate agents check AGENT does so.

    \b
    Examples:
      vitalgate agents health weather
    """
    from gateway.operator import agents as doing

    doing.show_health(_endpoint(given), given["timeout"], agent, given["as_json"], now=False)


@agents.command(cls=OperatorCommand, epilog=_EXITS)
@_AGENT
@_connecting(_CHECK_SECONDS)
def check(agent: str, **given: Any) -> None:
    """Check an agent now and show its health.

    The exit code says whether it was checked, not how it is.

    \b
    Examples:
      vitalgate agents check weather
      vitalgate agents check weather --json | jq -e '.status == "HEALTHY"'
    """
    from gateway.operator import agents as doing

    doing.show_health(_endpoint(given), given["timeout"], agent, given["as_json"], now=True)


@agents.command(cls=OperatorCommand, epilog=_EXITS)
@_AGENT
@click.option("--limit", type=click.IntRange(1), help="Only the last so many.")
@_connecting(_REST_SECONDS)
def history(agent: str, limit: int | None, **given: Any) -> None:
    """Show the results of an agent's last checks, the newest first.

    The gateway keeps the last 100.

    \b
    Examples:
      vitalgate agents history weather --limit 10
    """
    from gateway.operator import agents as doing

    doing.show_history(_endpoint(given), given["timeout"], agent, limit, given["as_json"])


_CALLING = _options(
    _AGENT,
    click.argument("text", metavar="TEXT"),
    click.option("--context-id", metavar="ID", help="Go on with this conversation."),
    click.option("--task-id", metavar="ID", help="Go on with this task."),
    click.option("--header", "headers", metavar="NAME:VALUE", multiple=True, help="May be repeated."),
    click.option(
        "--protocol", type=click.Choice(("0.3", "1.0")), help="A2A version; by default what the agent's card says."
    ),
)


@click.command(cls=OperatorCommand, epilog=_EXITS)
@_CALLING
@_connecting(_CALL_SECONDS)
def send(**given: Any) -> None:
    """Send TEXT (`-` for standard input) to an agent, and print the text of its answer.

    What became of the task is said on standard error. A task that failed exits with 1, and so does an error.

    \b
    Examples:
      vitalgate send weather "Will it rain in Lisbon?"
      vitalgate send weather --json "hello" | jq .result
      vitalgate send coder - --context-id 5f1c < question.txt
    """
    from gateway.operator import calls as doing

    endpoint = _endpoint(given)
    sys.exit(doing.send(endpoint, _order(given, endpoint)))


@click.command(cls=OperatorCommand, epilog=_EXITS)
@_CALLING
@_connecting(None)
def stream(**given: Any) -> None:
    """Send TEXT (`-` for standard input) to an agent, and print its answer as it comes.

    Text goes to standard output, states to standard error; --json prints each event on a line. Ctrl-C leaves.

    \b
    Examples:
      vitalgate stream writer "a poem about gateways"
      vitalgate stream writer --json "hello" | jq -c .result
    """
    from gateway.operator import calls as doing

    endpoint = _endpoint(given)
    sys.exit(doing.stream(endpoint, _order(given, endpoint)))


def _order(given: dict[str, Any], endpoint: Any) -> Any:
    from gateway.operator.calls import Order
    from gateway.operator.headers import read_headers, read_text
    from gateway.operator.rpc import Told

    told = Told(read_text(given["text"]), given["context_id"], given["task_id"])
    headers = read_headers(given["headers"], bool(endpoint.token))
    return Order(given["agent"], told, headers, given["protocol"], given["as_json"], given["timeout"])


@click.command(cls=OperatorCommand, epilog=_EXITS)
@_connecting(_REST_SECONDS)
def nodes(**given: Any) -> None:
    """Show the nodes of the cluster that the gateway belongs to.

    A gateway whose registry is no Redis or Valkey is a cluster of one. "This one" is the node that answers.

    \b
    Examples:
      vitalgate nodes
    """
    from gateway.operator import nodes as doing

    doing.show_nodes(_endpoint(given), given["timeout"], given["as_json"])


@click.command(cls=OperatorCommand, epilog=_EXITS)
@_connecting(_REST_SECONDS)
def reload(**given: Any) -> None:
    """Have the gateway read its settings again, and say what that changed and what needs a restart.

    Without authentication that works on the gateway's own machine only. Wrong settings change nothing.

    \b
    Examples:
      vitalgate reload
      vitalgate reload --url https://gateway.example --token-file ops.token
    """
    from gateway.operator import nodes as doing

    doing.reload(_endpoint(given), given["timeout"], given["as_json"])


@click.command()
@click.argument("shell", type=click.Choice(tuple(_COMPLETIONS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and agents' ids in a shell.

    Ids are asked of the gateway that VITALGATE_URL names.

    \b
    Examples:
      vitalgate completion bash > ~/.local/share/bash-completion/completions/vitalgate
      eval "$(vitalgate completion zsh)"
      vitalgate completion fish > ~/.config/fish/completions/vitalgate.fish
    """
    found = _COMPLETIONS[shell]
    click.echo(found(ctx.find_root().command, {}, "vitalgate", "_VITALGATE_COMPLETE").source())
