"""The benchmark run: what the command line asks for, measured, judged and printed.

Progress goes to stderr, the tables to stdout. Exit code: 0 = every "first" target met, 1 = one missed or
not measurable, 2 = the bench itself could not run.
"""

import argparse
import json
import platform
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import cases, load, report, subjects, targets
from tests.benchmarks.cases import Case, Group, Metrics
from tests.benchmarks.processes import BenchError
from tests.benchmarks.subjects import Bench

FULL = {"repeats": 5, "window": 2, "many": 10_000, "streams": 5_000}
QUICK = {"repeats": 1, "window": 1, "many": 1_000, "streams": 1_000}
#: The whole run ends by itself; more than the usual repeats get their own allowance.
LIMIT_SECONDS, LIMIT_SECONDS_PER_REPEAT = 600, 120
WAITED_SHARE_TO_MENTION = 0.05

Raw = dict[str, dict[str, list[Metrics | None]]]


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def measure(bench: Bench, groups: Sequence[Group], repeats: int, seed: int) -> Raw:
    """All groups one after another; results by case, subject and repeat."""
    shuffler, results = random.Random(seed), Raw()
    for group in groups:
        names = dict.fromkeys(name for case in group.cases for name in case.subjects)
        results.update({case.name: {name: [] for name in case.subjects} for case in group.cases})
        if not group.cold:
            for name in names:
                say(f"{group.name}: starting {name}")
                bench.start(name)
        turns = min(repeats, group.at_most or repeats)
        for repeat in range(turns):
            pairs = [(case, name) for case in group.cases for name in case.subjects]
            shuffler.shuffle(pairs)
            for case, name in pairs:
                results[case.name][name].append(_once(bench, case, name, f"{repeat + 1}/{turns}"))
        for subject in list(bench.running.values()):
            bench.stop(subject)
    return results


def _once(bench: Bench, case: Case, name: str, which: str) -> Metrics | None:
    try:
        metrics = case.measure(bench, name)
    except BenchError as error:
        say(f"{which} {case.name} {name}: INVALID: {error}")
        return None
    shown = "  ".join(f"{key} {value:,.4g}" for key, value in metrics.items())
    say(f"{which} {case.name} {name}: {shown}")
    return metrics


def add_latency(results: Raw) -> None:
    """Where the agent was measured without a proxy: what each proxy adds, inside one repeat."""
    for case in results.values():
        direct = case.get("direct")
        for name, repeats in case.items():
            if direct is None or name == "direct":
                continue
            for one, floor in zip(repeats, direct, strict=True):
                if one is not None and floor is not None and "p50_us" in one:
                    one["added_p50_us"] = one["p50_us"] - floor["p50_us"]


def noise(results: Raw) -> str | None:
    """A warning when others used the measured core: waiting calls are served in batches, which are cheaper."""
    shares = sorted(
        one["waited"]
        for case in results.values()
        for repeats in case.values()
        for one in repeats
        if one is not None and "waited" in one
    )
    if not shares or shares[len(shares) // 2] < WAITED_SHARE_TO_MENTION:
        return None
    return (
        f"NOISY: the measured processes waited {shares[len(shares) // 2]:.0%} of the time for their core "
        f"(median; up to {shares[-1]:.0%}), taken by others: repeat on a quiet machine"
    )


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="vitalgate beside nginx, Envoy and a usual Python stack")
    parser.add_argument("--quick", action="store_true", help="about one minute; good for a first look only")
    parser.add_argument(
        "--scenario", action="append", default=[], metavar="NAME", help="only this one (again for more)"
    )
    parser.add_argument(
        "--subject", action="append", default=[], metavar="NAME", help="only this process (again for more)"
    )
    parser.add_argument("--repeats", type=int, metavar="N", help="repeats (5; --quick: 1)")
    parser.add_argument("--streams", type=int, metavar="N", help="silent streams, and those of the soak (5000)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10_000, help="of the shuffling")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every repeat's numbers")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the tables between the marks of a page")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    parsed = parser.parse_args(argv)
    if parsed.repeats is not None and not 1 <= parsed.repeats <= 100:
        parser.error("--repeats must be 1 to 100")
    if parsed.streams is not None and not 100 <= parsed.streams <= 16_000:
        parser.error("--streams must be 100 to 16000")
    return parsed


def main(argv: Sequence[str] | None = None) -> int:
    """Run as told; the exit code."""
    options = arguments(argv)
    plan = QUICK if options.quick else FULL
    repeats = options.repeats or plan["repeats"]
    try:
        groups = cases.select(options.scenario, options.subject)
        about = {case.name: case.about for group in groups for case in group.cases}
        if options.list:
            print(report.table([[case.name, case.about] for group in groups for case in group.cases]))
            return 0
        load.wrk()
        with subjects.opened(
            window_seconds=plan["window"],
            many_agents=plan["many"],
            streams=options.streams or plan["streams"],
            say=say,
        ) as bench:
            results = measure(bench, groups, repeats, options.seed)
    except BenchError as error:
        say(f"bench: {error}")
        return 2
    add_latency(results)
    judgements = targets.judge(targets.load(), results)
    tables = {"measured": report.measurements(results, about), "targets": report.verdicts(judgements)}
    print(tables["measured"], tables["targets"], sep="\n\n")
    warning = noise(results)
    if warning:
        print(f"\n{warning}")
    machine = {"python": platform.python_version(), "machine": platform.platform(), "seed": options.seed}
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "results": results}, indent=1))
    if options.page:
        run = f"{time.strftime('%Y-%m-%d')}, Python {machine['python']}, {_cores()}, {repeats} repeats. "
        tables["run"] = run + (warning or "Nobody else used the machine.")
        options.page.write_text(report.renewed(options.page.read_text(), tables))
    return 1 if any(one.failed for one in judgements) or _has_invalid(results) else 0


def _cores() -> str:
    """The machine's processor."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{len(names)} x {names[0].partition(': ')[2]}" if names else platform.machine()


def _has_invalid(results: Raw) -> bool:
    return any(one is None for case in results.values() for repeats in case.values() for one in repeats)


def limited(argv: Sequence[str] | None) -> int:
    """Main, with an end in time; the first signal ends it, cleaning up undisturbed by further ones."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)

    def stop(number: int, _frame: object) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number).name)

    for one in signals:
        signal.signal(one, stop)
    repeats = arguments(argv).repeats or 0
    signal.alarm(max(LIMIT_SECONDS, LIMIT_SECONDS_PER_REPEAT * repeats))
    try:
        return main(argv)
    except KeyboardInterrupt as reason:
        say(f"bench: stopped ({reason}); its processes have been ended")
        return 2
