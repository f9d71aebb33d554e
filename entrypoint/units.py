"""Sizes in words."""

GIB = 1 << 30
MIB = 1 << 20


def size_text(size_bytes: float | None) -> str:
    """Returns a size with a binary unit: `1.5 GiB`, `64 MiB`; `unknown` for None."""
    if size_bytes is None:
        return "unknown"
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if abs(size_bytes) >= unit:
            return f"{size_bytes / unit:.1f} {name}".replace(".0 ", " ")
    return f"{size_bytes:.0f} B"


def count_text(count: float) -> str:
    """Returns a number of CPUs without needless digits: `4`, `1.5`."""
    return f"{count:.2f}".rstrip("0").rstrip(".")
