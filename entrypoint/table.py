"""Plain-text tables: no colours, no cursor movement, readable in any log."""

from collections.abc import Sequence

from entrypoint.plan import Plan
from entrypoint.units import size_text

GAP = "  "
GIVES_WAY = " (!)"
"""Mark of decisions that give way to a limit."""
DOES_NOT_FIT = "DOES NOT FIT"
"""Mark of a resource that the plan asks too much of."""


def table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows in columns as wide as their longest cell; the last column is not padded."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append(GAP.join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)


def plan_table(plan: Plan) -> str:
    """Returns a plan as people read it: decisions, then what the job takes from memory, /dev/shm and GPU."""
    rows = [("decision", "value", "from", "why")]
    for decision in plan.decisions:
        mark = GIVES_WAY if decision.degraded else ""
        rows.append((decision.name + mark, _short(decision.value), decision.source, decision.reason))
    parts = [table(rows)]
    for budget in plan.budgets:
        total = f"{size_text(budget.needed_bytes)} of {size_text(budget.available_bytes)}"
        verdict = "fits" if budget.fits else DOES_NOT_FIT
        lines = [("", need.what, size_text(need.size_bytes), need.reason) for need in budget.needs]
        parts.append(f"{budget.resource}: {total}, {verdict} ({budget.source})\n" + table(lines))
    parts.extend(f"note: {note}" for note in plan.notes)
    return "\n\n".join(parts)


def _short(value: object) -> str:
    return "none" if value is None else str(value)
