"""Reading the settings again while the gateway runs: SIGHUP and POST /admin/reload (contract 8).

All or nothing: whoever may find a mistake is asked first, and only then does anything change. What cannot change
while the process runs is named, and stays as it is until a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gateway.errors import StartError
from gateway.settings import Settings, SettingsError
from gateway.settings_model import SECTIONS

logger = logging.getLogger(__name__)

#: What changes while the gateway runs; `auth.*` and `health.*` only while the section is and stays enabled.
RELOADED: Final = frozenset(
    (
        "a2a.trusted_origins",
        "upstream.credentials",
        *(f"auth.{name}" for name in SECTIONS["auth"].model_fields if name != "enable"),
        "limits.requests_per_second",
        "limits.registrations_per_minute",
        *(f"health.{name}" for name in SECTIONS["health"].model_fields if name != "enable"),
        *(f"log.{name}" for name in SECTIONS["log"].model_fields),
    )
)
_SWITCHED: Final = ("auth", "health")

#: Takes what was prepared, and names the settings whose files hold something new.
Change = Callable[[], list[str]]
#: Reads what new settings name; raises StartError if it cannot be used.
Prepare = Callable[[Settings], Change]


class ReloadError(Exception):
    """Nothing was changed, because something is wrong.

    Attributes:
        problems: Every mistake, one line each, without values.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of settings that are not as they were, as `section.field`."""

    changed: tuple[str, ...]
    unchanged_until_restart: tuple[str, ...]


class Reload:
    """Reads the settings again and tells those who follow."""

    def __init__(self, settings: Settings, read: Callable[[], Settings]) -> None:
        """Take what holds and the way to read it again.

        Args:
            settings: What the parts were built from.
            read: Reads all sources anew; may block; raises SettingsError.
        """
        self.settings = settings
        self._read = read
        self._follow: list[tuple[tuple[str, ...], Callable[[Settings], None]]] = []
        self._prepare: list[Prepare] = []
        self.told: Callable[[Settings], None] = _nobody
        """Told what holds after each reload."""
        self.others: Callable[[], None] = _nobody
        """Has the processes beside this one, if there are any, read them again, too."""
        self._running = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, change: Callable[[Settings], None], *settings: str) -> None:
        """Have `change`, which cannot fail, called when a setting changes that begins with one of `settings`."""
        self._follow.append((settings, change))

    def follow_files(self, prepare: Prepare) -> None:
        """Have something prepared each time that may fail, before anything changes."""
        self._prepare.append(prepare)

    def hang_up(self) -> None:
        """Reload because of a signal: what becomes of it stands in the log only."""
        task = asyncio.get_running_loop().create_task(self._logged(), name="reload")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _logged(self) -> None:
        try:
            await self()
        except ReloadError:
            return  # stands in the log
        except Exception:  # the edge: a signal has nobody to tell
            logger.exception("reading the settings again failed, nothing was changed")

    async def everywhere(self) -> Outcome:
        """Read the settings again in all processes that share this one's port; the outcome is this one's.

        Raises:
            ReloadError: nothing was changed.
        """
        outcome = await self()
        self.others()
        return outcome

    async def __call__(self) -> Outcome:
        """Read the settings again; what becomes of it stands in the log, too.

        Raises:
            ReloadError: nothing was changed.
        """
        async with self._running:
            try:
                read = await asyncio.to_thread(self._read)
                settings, outcome = merged(self.settings, read)
                changes = [prepare(settings) for prepare in self._prepare]
            except SettingsError as error:
                raise _refused(error.problems) from None
            except StartError as error:
                raise _refused([str(error)]) from None
            return self._take(settings, outcome, changes)

    def _take(self, settings: Settings, outcome: Outcome, changes: list[Change]) -> Outcome:
        self.settings = settings
        renewed = {name for change in changes for name in change()}
        outcome = Outcome(_sorted({*outcome.changed, *renewed}), outcome.unchanged_until_restart)
        for prefixes, follower in self._follow:
            if any(name.startswith(prefixes) for name in outcome.changed):
                follower(settings)
        self.told(settings)
        fields = {name: list(getattr(outcome, name)) for name in ("changed", "unchanged_until_restart")}
        level = logging.WARNING if outcome.unchanged_until_restart else logging.INFO
        logger.log(level, "settings read again", extra={"fields": fields})
        return outcome


def _nobody(*_: object) -> None:
    pass


def _refused(problems: list[str]) -> ReloadError:
    for problem in problems:
        logger.error("settings not taken, nothing was changed", extra={"fields": {"problem": problem}})
    return ReloadError(problems)


def merged(held: Settings, read: Settings) -> tuple[Settings, Outcome]:
    """Give what holds from now on, and what became of each difference."""
    fixed = {name for name in _SWITCHED if not (getattr(held, name).enable and getattr(read, name).enable)}
    names = list(_differences(held, read))
    changed = {name for name in names if name in RELOADED and name.partition(".")[0] not in fixed}
    sections = {}
    for section in SECTIONS:
        fields = [name.partition(".")[2] for name in changed if name.startswith(f"{section}.")]
        new = getattr(read, section)
        sections[section] = getattr(held, section).model_copy(update={one: getattr(new, one) for one in fields})
    return held.model_copy(update=sections), Outcome(_sorted(changed), _sorted(set(names) - changed))


def _differences(held: Settings, read: Settings) -> Iterator[str]:
    for section, model in SECTIONS.items():
        for name in model.model_fields:
            if getattr(getattr(held, section), name) != getattr(getattr(read, section), name):
                yield f"{section}.{name}"


def _sorted(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
