"""Starts the benchmark: `make bench`, or `python tests/benchmarks/run.py --help`; see bench.py."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # be found as tests.benchmarks, as the tests do
    from tests.benchmarks.bench import limited

    sys.exit(limited(sys.argv[1:]))
