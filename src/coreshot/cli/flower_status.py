"""What `coreshot flower status` says to a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any


def status_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Sites by their names. Without certificates a node has a number only, so these are counted."""
    yield f"SuperLink {facts['superlink']}: {'running' if facts['is_running'] else 'not running'}"
    for role, is_running in facts["processes"].items():
        if role != "superlink":
            yield f"{role}, on this machine: {'running' if is_running else 'not running'}"
    unnamed: Counter[str] = Counter()
    for node in facts.get("nodes", ()):
        if node["name"].isdigit():
            unnamed[node["status"]] += 1
        else:
            yield f"{node['name']}: {node['status']}"
    for status, number in unnamed.items():
        yield f"{number} {'node' if number == 1 else 'nodes'} {status}"
    for run in facts.get("runs", ()):
        yield f"run {run['run']}: {run['status'].replace(':', ', ')}"
