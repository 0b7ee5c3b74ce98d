"""The judge: targets.toml against what was measured."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

FILE = Path(__file__).with_name("targets.toml")

#: case -> subject -> one entry per repeat; None where an answer was wrong.
Results = Mapping[str, Mapping[str, Sequence[Mapping[str, float] | None]]]


@dataclass(frozen=True, slots=True)
class Number:
    """The name of a measured number, written case/subject.number."""

    case: str
    subject: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "Number":
        """Read `case/subject.number`; ValueError otherwise."""
        case, slash, rest = text.partition("/")
        subject, dot, name = rest.partition(".")
        if not (slash and dot and case and subject and name):
            raise ValueError(f"not case/subject.number: {text!r}")
        return cls(case, subject, name)

    def chosen(self, results: Results) -> bool:
        """Whether this run was asked to measure it."""
        return self.subject in results.get(self.case, {})

    def values(self, results: Results) -> list[float | None]:
        """One value per repeat."""
        return [None if one is None else one.get(self.name) for one in results[self.case][self.subject]]


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the targets: an upper bound in up to three steps."""

    what: str
    value: Number
    per: Number | None
    first: float
    goal: float
    stretch: float | None

    def verdict(self, value: float) -> str:
        """The best step that `value` meets."""
        if self.stretch is not None and value <= self.stretch:
            return "stretch"
        if value <= self.goal:
            return "goal"
        return "first" if value <= self.first else "MISSED"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A target with the values of the repeats that counted."""

    target: Target
    values: tuple[float, ...]
    repeats: int

    @property
    def median(self) -> float | None:
        """The measured value; None if half of the repeats or more did not count."""
        return median(self.values) if 2 * len(self.values) > self.repeats else None

    @property
    def verdict(self) -> str:
        """first, goal, stretch, MISSED or INVALID."""
        value = self.median
        return "INVALID" if value is None else self.target.verdict(value)

    @property
    def failed(self) -> bool:
        """Whether the run must end with exit code 1."""
        return self.verdict in ("MISSED", "INVALID")


def load(path: Path = FILE) -> list[Target]:
    """Read the targets; ValueError or KeyError or TypeError if the file is wrong."""
    return [_target(entry) for entry in tomllib.loads(path.read_text("utf-8"))["target"]]


def gate(path: Path = FILE) -> dict[str, float]:
    """The bounds of the in-process bench, in units, by its kind."""
    bounds: dict[str, float] = tomllib.loads(path.read_text("utf-8"))["gate"]
    return bounds


def judge(targets: Sequence[Target], results: Results) -> list[Judgement]:
    """Judge the targets that this run has measured."""
    return [_judge(target, results) for target in targets if _measured(target, results)]


def _target(entry: dict[str, str | float]) -> Target:
    known = {"what", "value", "per", "first", "goal", "stretch"}
    if set(entry) - known:
        raise ValueError(f"unknown keys in a target: {sorted(set(entry) - known)}")
    per, stretch = entry.get("per"), entry.get("stretch")
    return Target(
        what=str(entry["what"]),
        value=Number.parse(str(entry["value"])),
        per=None if per is None else Number.parse(str(per)),
        first=float(entry["first"]),
        goal=float(entry["goal"]),
        stretch=None if stretch is None else float(stretch),
    )


def _measured(target: Target, results: Results) -> bool:
    return target.value.chosen(results) and (target.per is None or target.per.chosen(results))


def _judge(target: Target, results: Results) -> Judgement:
    tops = target.value.values(results)
    if target.per is None:
        values = [top for top in tops if top is not None]
    else:
        # Repeat by repeat: machine noise that lasts longer than a repeat drops out of the ratio.
        pairs = zip(tops, target.per.values(results), strict=True)
        values = [top / bottom for top, bottom in pairs if top is not None and bottom]
    return Judgement(target, tuple(values), len(tops))
