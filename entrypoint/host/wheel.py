"""What the installed PyTorch was built for, without importing it."""

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrypoint.host.tree import Tree

Capability = tuple[int, int]

MINIMUM_DRIVER = {13: (580, 65), 12: (525, 60)}
"""CUDA major version -> oldest Linux driver branch it runs on (CUDA Toolkit release notes)."""
OLDEST_GPU: tuple[tuple[tuple[int, int], tuple[int, int], Capability], ...] = (
    ((13, 0), (0, 0), (7, 5)),
    ((12, 8), (2, 11), (7, 5)),
    ((12, 8), (0, 0), (7, 0)),
    ((12, 0), (0, 0), (5, 0)),
)
"""(CUDA from, torch from, oldest compute capability): PyTorch's release matrix, first matching row counts."""
NEWEST_GPU_BEFORE_12_8: Capability = (9, 0)
"""Wheels for CUDA 12.7 and older hold no code for Blackwell cards (10.0 and 12.0)."""


@dataclass(frozen=True, kw_only=True)
class WheelFacts:
    """Versions of the installed PyTorch."""

    torch: str | None
    """Version, or None when PyTorch is not installed."""
    cuda: str | None
    """CUDA version it was built for; None for a build without CUDA."""

    @property
    def cuda_version(self) -> tuple[int, int] | None:
        """CUDA version as numbers."""
        return version_pair(self.cuda)

    def minimum_driver(self) -> tuple[int, int] | None:
        """Oldest driver the CUDA version runs on; None when unknown."""
        return MINIMUM_DRIVER.get(self.cuda_version[0]) if self.cuda_version else None

    def supports(self, capability: Capability | None) -> bool | None:
        """Says whether the wheel holds code for a GPU; None when one of the two is unknown."""
        if self.cuda_version is None or capability is None:
            return None
        if self.cuda_version < (12, 8) and capability[0] > NEWEST_GPU_BEFORE_12_8[0]:
            return False
        torch_version = version_pair(self.torch) or (0, 0)
        for cuda_from, torch_from, oldest in OLDEST_GPU:
            if self.cuda_version >= cuda_from and torch_version >= torch_from:
                return capability >= oldest
        return None


def read_wheel(tree: Tree) -> WheelFacts:
    """Returns what `wheel` in facts.json says, else what is installed here."""
    given: dict[str, Any] | None = tree.given.get("wheel")
    if given is not None:
        torch, cuda = given.get("torch"), given.get("cuda")
        return WheelFacts(torch=None if torch is None else str(torch), cuda=None if cuda is None else str(cuda))
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return WheelFacts(torch=None, cuda=None)
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        text = ""
    return WheelFacts(torch=_assigned(text, "__version__"), cuda=_assigned(text, "cuda"))


def version_pair(text: str | None) -> tuple[int, int] | None:
    """Returns the first two numbers of a version: `580.65.06` -> (580, 65); None when there are none."""
    match = re.match(r"(\d+)(?:\.(\d+))?", text or "")
    return (int(match.group(1)), int(match.group(2) or 0)) if match else None


def _assigned(text: str, name: str) -> str | None:
    match = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else None
