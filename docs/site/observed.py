"""A gateway that is started and asked about itself: its OpenAPI document and its metrics."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

_SETTINGS = """
server: {port: 0}
metrics: {port: 0}
registry: {url: "memory://"}
log: {calls: false}
"""
_SECONDS = 20


def gateway() -> tuple[dict[str, Any], str]:
    """The OpenAPI document, and the text of /metrics.

    Raises:
        RuntimeError: it did not start; its own words.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "gateway.yaml")
        file.write_text(_SETTINGS)
        command = [str(Path(sys.executable).with_name("vitalgate")), "serve", "--config", str(file)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                api = _address(process)
                return json.loads(_get(f"{api}/schema")), _get(f"{api}/metrics")
            finally:
                process.terminate()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        if '"event":"listening"' in line:
            return str(json.loads(line)["api"])
        said += line
    raise RuntimeError(f"the gateway did not start:\n{said}")


def _get(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=_SECONDS) as answer:
        return str(answer.read().decode())
