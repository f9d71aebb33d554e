"""How the entrypoint ends when it has a mistake of its own."""

import pytest

from entrypoint import health
from entrypoint.cli import main


def test_a_mistake_of_the_entrypoint_ends_with_the_code_of_internal_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(argv: list[str]) -> int:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(health, "run_health", mistaken)
    assert main(["health"]) == 70
