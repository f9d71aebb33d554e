"""What was measured before it is decided whether to copy the data set."""

from dataclasses import dataclass

from entrypoint.host.storage import MEMORY, FolderFacts

PAGE_BYTES = 4096
"""Memory file systems and most disks give a file whole pages."""
FILE_OVERHEAD_BYTES = 1024
"""Kernel memory for an inode and a directory entry; charged to the container too."""


@dataclass(frozen=True, kw_only=True)
class StageTarget:
    """A folder that the copy could go to."""

    folder: FolderFacts
    free_bytes: int | None
    """None: unknown."""
    free_files: int | None
    """How many files may still be made; None: unknown or not limited."""
    holds_copy: bool = False
    """A complete copy of this version of the data set lies there already."""
    problem: str = ""
    """Why it cannot be used whatever its size; "" when nothing speaks against it."""

    @property
    def in_memory(self) -> bool:
        """What is written there is charged to the memory limit."""
        return self.folder.medium == MEMORY


@dataclass(frozen=True, kw_only=True)
class StageSurvey:
    """A data set and the places for a copy."""

    sources: tuple[FolderFacts, ...]
    """The folders and list files of the splits in use."""
    files: int = 0
    """Files to copy; 0 when nothing asked for counting them."""
    size_bytes: int = 0
    footprint_bytes: int = 0
    """What the copy takes: whole pages and overhead of each file."""
    read_bytes_s: float | None = None
    """Speed of reading a few files one after the other, where the kind of storage tells nothing."""
    targets: tuple[StageTarget, ...] = ()
    """In the order of preference."""
    problem: str = ""
    """Why this data set cannot be copied, whatever the place."""


def footprint(size_bytes: int) -> int:
    """Returns what a file of this size takes from a file system."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES + FILE_OVERHEAD_BYTES
