"""Where a plan puts caches and temporary files."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from entrypoint.host import FolderFacts, HostFacts
from entrypoint.plan import make_plan
from entrypoint.request import JobRequest, make_request

FactsOf = Callable[..., HostFacts]


def ask(words: str = "", variables: Mapping[str, str] | None = None) -> JobRequest:
    return replace(make_request("train", words.split(), variables=variables or {}), model="yolov9-s")


def folder(path: str, **more: Any) -> FolderFacts:
    rest = {"existing": "/", "kind": None, "medium": "unknown", "free_bytes": None, "read_only_mount": None}
    return FolderFacts(**{"path": path, **rest, "owner_uid": 0, "mode": 0o777, **more})


def facts_with(facts: HostFacts, *folders: FolderFacts) -> HostFacts:
    """A machine whose user has no name, with these folders."""
    return replace(facts, folders=folders, limits=replace(facts.limits, uid=12345))


@pytest.mark.parametrize(
    ("home", "tmp", "expected"),
    [
        ({"writable": True}, {"writable": True}, "/home/u/.cache/yolov9"),
        ({"writable": False}, {"writable": True}, "/tmp/yolov9-12345"),
        ({"writable": False}, {"writable": True, "existing": "/tmp/yolov9-12345", "owner_uid": 666}, "/runs/.cache"),
        ({"writable": False}, {"writable": False}, "/runs/.cache"),
    ],
)
def test_p32_caches_go_where_this_user_may_write(
    facts_of: FactsOf, home: dict[str, Any], tmp: dict[str, Any], expected: str | None
) -> None:
    folders = (folder("/home/u/.cache/yolov9", **home), folder("/tmp/yolov9-12345", **tmp))
    plan = make_plan(facts_with(facts_of(), *folders), ask("--project /runs", variables={"HOME": "/home/u"}))
    assert plan.value("cache_dir") == expected
    assert plan.environment.get("YOLOV9_CACHE_DIR") == expected


def test_p32_where_nothing_can_be_written_there_is_no_cache(facts_of: FactsOf) -> None:
    names = ("/home/u/.cache/yolov9", "/tmp/yolov9-12345", "/runs/.cache")
    facts = facts_with(facts_of(), *(folder(name, writable=False) for name in names))
    plan = make_plan(facts, ask("--project /runs", variables={"HOME": "/home/u"}))
    assert plan.value("cache_dir") is None
    assert "YOLOV9_CACHE_DIR" not in plan.environment


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (("/home",), None),
        (("/tmp",), "/dev/shm"),
        (("/tmp", "/dev/shm"), "/runs"),
        (("/tmp", "/dev/shm", "/runs"), None),
    ],
)
def test_p32_with_a_read_only_root_alone_temporary_files_go_elsewhere(
    facts_of: FactsOf, bad: tuple[str, ...], expected: str | None
) -> None:
    facts = facts_with(facts_of(), *(folder(name, writable=False) for name in bad))
    plan = make_plan(facts, ask("--project /runs"))
    assert plan.value("temporary_dir") == expected
    assert plan.environment.get("TMPDIR") == expected


@pytest.mark.parametrize("home", ["", "/"])
def test_p32_without_a_home_nothing_is_put_into_the_root_folder(facts_of: FactsOf, home: str) -> None:
    plan = make_plan(facts_of(), ask(variables={"HOME": home}))
    assert str(plan.value("cache_dir")).startswith("/tmp/yolov9-")
    assert all(value.startswith("/tmp/yolov9-") for value in plan.environment_defaults.values())
