"""What was found in a split: counts, problems by reason, and a report file for the run folder."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from yolov9.logs import LOG

SHOWN_PER_REASON = 3
"""Problems of one kind that go into the log; the report file has all of them."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one file."""

    path: str
    """The picture or label file."""
    reason: str
    """What is wrong, in words that can be counted."""
    action: str
    """"picture left out", "row left out", "repaired", or that it is kept."""
    line: int | None = None
    """First line concerned, from 1; None for pictures."""
    text: str = ""
    """That line, shortened."""
    rows: int = 1
    """Rows of the file with this problem."""

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        quoted = f": {self.text!r}" if self.text else ""
        more = f" and {self.rows - 1} more rows" if self.rows > 1 else ""
        return f"{where}: {self.reason}{quoted}{more}; {self.action}"


@dataclass(frozen=True, kw_only=True)
class DatasetSummary:
    """Counts over one split; `found == used + skipped`."""

    split: str
    """"train", "val" or "test"."""
    used: int
    """Pictures that are used."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Pictures that are not used, by reason."""
    backgrounds: int = 0
    """Used pictures without objects."""
    labels_missing: int = 0
    """Used pictures without label file; part of `backgrounds`."""
    names: tuple[str, ...] = ()
    """Class names."""
    boxes_per_class: tuple[int, ...] = ()
    """Objects in the used pictures, by class number."""
    problems: tuple[Problem, ...] = ()
    """Everything odd, in the order of the pictures."""

    @property
    def skipped(self) -> int:
        """Pictures that are not used."""
        return sum(self.left_out.values())

    @property
    def found(self) -> int:
        """Pictures of the split."""
        return self.used + self.skipped

    @property
    def boxes(self) -> int:
        """Objects in the used pictures."""
        return sum(self.boxes_per_class)

    def counts(self) -> dict[str, int]:
        """Returns files per reason, most frequent first."""
        return dict(Counter(problem.reason for problem in self.problems).most_common())

    def headline(self) -> str:
        """Returns the counts in one line."""
        line = (
            f"{self.split}: {self.found} pictures found, {self.used} used, {self.skipped} left out; "
            f"{self.boxes} objects of {sum(1 for boxes in self.boxes_per_class if boxes)} classes; "
            f"{self.backgrounds} pictures without objects"
        )
        return f"{line} ({self.labels_missing} of them without a label file)" if self.labels_missing else line

    def log(self) -> None:
        """Logs the counts and the first problems of each kind."""
        LOG.info("%s", self.headline())
        for reason, count in self.counts().items():
            shown = [problem for problem in self.problems if problem.reason == reason][:SHOWN_PER_REASON]
            for problem in shown:
                LOG.warning("%s", problem)
            if count > len(shown):
                LOG.warning("... %d more files: %s", count - len(shown), reason)

    def write_report(self, path: Path) -> None:
        """Writes counts and every problem as text; existing content is replaced."""
        lines = [self.headline(), "", "Pictures left out, by reason:"]
        lines += [f"{count:8d}  {reason}" for reason, count in self.left_out.items()] or ["       0"]
        lines += ["", "Objects by class:"]
        lines += [f"{boxes:8d}  {name}" for name, boxes in zip(self.names, self.boxes_per_class, strict=True)]
        lines += ["", "Files with problems, by reason:"]
        lines += [f"{count:8d}  {reason}" for reason, count in self.counts().items()] or ["       0"]
        lines += ["", *(str(problem) for problem in self.problems)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(("\n".join(lines) + "\n").encode("utf-8", errors="surrogateescape"))
