"""Shared by the tests of plans: a machine on paper."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from entrypoint.host import HostFacts, read_facts

MIB = 1 << 20
MakeTree = Callable[..., Path]


@pytest.fixture
def facts_of(make_tree: MakeTree) -> Callable[..., HostFacts]:
    """Function: a machine with so much memory, so many CPUs and what else is given."""

    def read(memory_gib: float = 64, cpus: int = 16, **given: Any) -> HostFacts:
        meminfo = f"MemTotal: {int(memory_gib * MIB)} kB\nMemAvailable: {int(memory_gib * MIB)} kB\n"
        wheel = {"torch": "2.14.1+cu130", "cuda": "13.0"}
        return read_facts(make_tree({"proc/meminfo": meminfo}, {"affinity": cpus, "wheel": wheel, **given}))

    return read
