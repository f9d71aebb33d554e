"""Decides where caches and temporary files go: the first folder that this user may write to."""

from collections.abc import Iterator
from pathlib import Path

from entrypoint.host import FolderFacts, HostFacts
from entrypoint.host.shm import SHM_DIR
from entrypoint.plan.decision import Decision
from entrypoint.request import JobRequest

CACHE_BESIDE_RESULTS = ".cache"


def project_of(request: JobRequest) -> str:
    """Returns the folder that holds the runs of a command."""
    return request.settings.project or f"runs/{request.command}"


def own_temporary_dir(request: JobRequest, uid: int | None) -> Path:
    """Returns this user's folder among the temporary files."""
    return request.environment.temporary_dir / f"yolov9-{uid}"


def folders_to_read(request: JobRequest, uid: int | None) -> list[Path]:
    """Returns the folders that the decisions here ask about."""
    environment = request.environment
    project = Path(project_of(request))
    folders = [project, project / CACHE_BESIDE_RESULTS, environment.temporary_dir, own_temporary_dir(request, uid)]
    return [*folders, Path(SHM_DIR), *([environment.cache_dir] if environment.cache_dir is not None else [])]


def decide_cache_dir(facts: HostFacts, request: JobRequest) -> Decision:
    """Where scan results and libraries' caches go; the value is None when nothing can be written.

    /dev/shm is not a candidate: compiled kernels cannot be executed there.
    """
    home, uid = request.environment.cache_dir, facts.limits.uid
    temporary = own_temporary_dir(request, uid)
    folder = _folder(facts, temporary)
    foreign = folder is not None and folder.path == folder.existing and folder.owner_uid != uid
    if home is not None and _usable(facts, home):
        return Decision(name="cache_dir", value=str(home), source="YOLOV9_CACHE_DIR or home", reason="writable")
    why = f"{home} is not writable" if home else "this user has no home"
    if _usable(facts, temporary) and not foreign:
        return Decision(name="cache_dir", value=str(temporary), source="TMPDIR", reason=why)
    why += f", {temporary} neither"
    beside = Path(project_of(request)).absolute() / CACHE_BESIDE_RESULTS
    if _usable(facts, beside):
        return Decision(name="cache_dir", value=str(beside), source="--project", reason=why)
    reason = f"{why}; data sets are scanned anew at each start"
    return Decision(name="cache_dir", value=None, source="nothing is writable", reason=reason)


def decide_temporary_dir(facts: HostFacts, request: JobRequest) -> Iterator[Decision]:
    """Yields another folder for temporary files where the usual one cannot be written, as with --read-only alone."""
    usual = request.environment.temporary_dir
    if _usable(facts, usual):
        return
    places = (Path(SHM_DIR), Path(project_of(request)).absolute())
    place = next((place for place in places if _usable(facts, place)), None)
    if place is not None:
        reason = f"{usual} is not writable; docker run --tmpfs /tmp"
        yield Decision(name="temporary_dir", value=str(place), source="first writable folder", reason=reason)


def _usable(facts: HostFacts, path: Path) -> bool:
    """True also where nobody looked: a cache that cannot be written is only slower."""
    folder = _folder(facts, path)
    return folder is None or folder.writable is not False


def _folder(facts: HostFacts, path: Path) -> FolderFacts | None:
    return next((folder for folder in facts.folders if folder.path == str(path.absolute())), None)
