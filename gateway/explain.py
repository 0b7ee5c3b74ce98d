"""`vitalgate explain`: what an error's reason or a health code means, and what to do."""

# ruff: noqa: D301 - the \b in docstrings is click's mark for "do not wrap": a real backspace
from __future__ import annotations

import rich_click as click

from gateway.faults import FAULTS
from gateway.remedies import REMEDIES
from healthcheck.explain import CODES_EXPLAINED

_RETRY = {
    "safe": "Sending again is safe: the agent never saw the call, or refused it.",
    "unsafe": "Sending again is not safe: the call may have run.",
    "no": "Sending the same again would fail again.",
}


@click.command("explain", context_settings={"ignore_unknown_options": True})  # a code begins with a dash
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Say what an error of the gateway or a code of the health checks means, and what to do.

    NAME is what stands in X-Gateway-Error (AGENT_TIMEOUT), the code of an error (-32003), or what stands in a
    check's finding (connect_refused). Without it all names are listed.

    \b
    Examples:
      vitalgate explain
      vitalgate explain AGENT_TIMEOUT
      vitalgate explain -32700
      vitalgate explain connect_refused
    """
    if name is None:
        click.echo("\n".join([*FAULTS, *CODES_EXPLAINED]))
        return
    text = _fault(name.upper()) or _code(name.lower()) or _number(name)
    if not text:
        raise click.UsageError(f"{name!r} is no such name; without one, all of them are listed")
    click.echo(text)


def _fault(reason: str) -> str | None:
    if reason not in FAULTS:
        return None
    fault, remedy = FAULTS[reason], REMEDIES[reason]
    lines = (
        f"{reason} ({fault.code}): {fault.message.format('...')}",
        f"Cause: {remedy.cause}",
        f"What to do ({remedy.acts}): {remedy.action}",
        _RETRY[fault.retry],
    )
    return "\n".join(lines)


def _number(code: str) -> str:
    """Explain all errors that have this code, in either dialect."""
    reasons = [reason for reason, fault in FAULTS.items() if code in (str(fault.code), str(fault.a2a_code))]
    return "\n\n".join(filter(None, map(_fault, reasons)))


def _code(code: str) -> str | None:
    if code not in CODES_EXPLAINED:
        return None
    words = CODES_EXPLAINED[code]
    return f"{code}: {words.meaning}\nCause: {words.cause}\nWhat to do: {words.remedy}"
