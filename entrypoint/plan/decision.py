"""A plan is a list of decisions; each says its value, where that came from and why."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One value of the plan."""

    name: str
    value: Any
    source: str
    """What was read: a limit with its file, a flag, a default."""
    reason: str
    degraded: bool = False
    """Less than was asked for, or than the machine could give; `--strict` stops here."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """One part of what a job takes from a resource."""

    what: str
    size_bytes: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a job takes from a resource, and what there is."""

    resource: str
    needs: tuple[Need, ...]
    available_bytes: int | None
    source: str

    @property
    def needed_bytes(self) -> int:
        """Sum of all parts."""
        return sum(need.size_bytes for need in self.needs)

    @property
    def fits(self) -> bool:
        """True also when it is not known what there is."""
        return self.available_bytes is None or self.needed_bytes <= self.available_bytes


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that was decided for a job."""

    command: str
    decisions: tuple[Decision, ...]
    budgets: tuple[Budget, ...] = ()
    """Memory, /dev/shm and GPU memory, part by part."""
    loaded_batch: int = 1
    """Pictures that each rank loads at a time."""
    micro_batch: int | None = None
    """Pictures of these that go through the network at a time; see `TrainSettings.micro_batch`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the trainer is started with."""
    environment_defaults: Mapping[str, str] = field(default_factory=dict)
    """Variables for the trainer where the user has set none of that name."""
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Decision:
        """Returns a decision by name.

        Raises:
            KeyError: nothing of that name was decided.
        """
        for decision in self.decisions:
            if decision.name == name:
                return decision
        raise KeyError(name)

    def value(self, name: str) -> Any:
        """Returns the value of a decision; None when nothing of that name was decided."""
        return next((decision.value for decision in self.decisions if decision.name == name), None)

    @property
    def degraded(self) -> tuple[Decision, ...]:
        """Decisions that `--strict` does not accept."""
        return tuple(decision for decision in self.decisions if decision.degraded)

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        budgets = [
            {**asdict(budget), "needed_bytes": budget.needed_bytes, "fits": budget.fits} for budget in self.budgets
        ]
        return {
            "command": self.command,
            "decisions": [asdict(decision) for decision in self.decisions],
            "budgets": budgets,
            "environment": dict(self.environment),
            "environment_defaults": dict(self.environment_defaults),
            "notes": list(self.notes),
        }
