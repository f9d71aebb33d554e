"""Every environment variable that the program reads, in one place. No other module looks at the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SETTING_PREFIX = "YOLOV9_"
"""`YOLOV9_EPOCHS=3` sets the option `--epochs` (defaults < YAML < environment < command line)."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Typed view of the variables that are not options of a command."""

    rank: int = 0
    """`RANK`: number of this process among all trainer processes; set by entrypoint.ranks or torchrun."""
    local_rank: int = 0
    """`LOCAL_RANK`: number of this process on this machine; set likewise."""
    world_size: int = 1
    """`WORLD_SIZE`: number of trainer processes; set likewise."""
    rendezvous_file: Path | None = None
    """`RENDEZVOUS_FILE`: where ranks of one machine meet; torchrun's have MASTER_ADDR and MASTER_PORT instead."""
    assigner_topk: int | None = None
    """`YOLOM`: anchors per target in the label assigner (recipe default 10)."""
    assigner_alpha: float | None = None
    """`YOLOA`: exponent of the class score in the label assigner (recipe default 0.5)."""
    assigner_beta: float | None = None
    """`YOLOB`: exponent of the IoU in the label assigner (recipe default 6)."""
    visible_devices: str | None = None
    """`CUDA_VISIBLE_DEVICES`: GPUs that CUDA may use; None when not set, "" when all are hidden."""
    omp_threads: int | None = None
    """`OMP_NUM_THREADS`: a value set by the user wins over the plan's."""
    cpus_requested: int | None = None
    """`SLURM_CPUS_PER_TASK` and the like: a request of the scheduler, never more than the limits allow."""
    cache_dir: Path | None = None
    """`YOLOV9_CACHE_DIR`, else `XDG_CACHE_HOME`/yolov9, else `HOME`/.cache/yolov9: scan results and decoded images."""
    kernel_cache_dir: Path | None = None
    """`TRITON_CACHE_DIR`, else .triton/cache in `TRITON_HOME` or `HOME`: where Triton keeps compiled kernels."""
    temporary_dir: Path = Path("/tmp")
    """`TMPDIR`: where short-lived files go."""
    weights_dir: Path | None = None
    """`YOLOV9_WEIGHTS_DIR`: where weights named without a folder are looked for after the working folder."""
    python_path: str = ""
    """`PYTHONPATH`: kept when child processes get more folders to import from."""


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Reads the variables above.

    Args:
        variables: a mapping to read instead of the process's environment.

    Raises:
        ValueError: a variable that must be a number is not one; the message names it.
    """
    env = os.environ if variables is None else variables
    return Environment(
        rank=_integer(env, "RANK") or 0,
        local_rank=_integer(env, "LOCAL_RANK") or 0,
        world_size=_integer(env, "WORLD_SIZE") or 1,
        rendezvous_file=Path(env["RENDEZVOUS_FILE"]) if env.get("RENDEZVOUS_FILE") else None,
        assigner_topk=_integer(env, "YOLOM"),
        assigner_alpha=_number(env, "YOLOA"),
        assigner_beta=_number(env, "YOLOB"),
        visible_devices=env.get("CUDA_VISIBLE_DEVICES"),
        omp_threads=_integer(env, "OMP_NUM_THREADS"),
        cpus_requested=_first_integer(env, "SLURM_CPUS_PER_TASK", "PBS_NCPUS", "NSLOTS"),
        cache_dir=_cache_dir(env),
        kernel_cache_dir=_kernel_cache_dir(env),
        temporary_dir=Path(env.get("TMPDIR") or "/tmp"),
        weights_dir=Path(env["YOLOV9_WEIGHTS_DIR"]) if env.get("YOLOV9_WEIGHTS_DIR") else None,
        python_path=env.get("PYTHONPATH", ""),
    )


def read_setting_variables(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns options given as `YOLOV9_NAME=value`, as `{"name": "value"}` in lower case."""
    env = os.environ if variables is None else variables
    reserved = {"YOLOV9_CACHE_DIR", "YOLOV9_WEIGHTS_DIR"}
    return {
        name.removeprefix(SETTING_PREFIX).lower(): value
        for name, value in sorted(env.items())
        if name.startswith(SETTING_PREFIX) and name not in reserved
    }


def child_environment(changes: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns this process's environment for a child process.

    Args:
        changes: variables that replace those of the same name.
        defaults: variables that are added where there is none of that name.
    """
    return {**(defaults or {}), **os.environ, **changes}


def _integer(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"environment variable {name}={text!r} is not a whole number") from None


def _first_integer(env: Mapping[str, str], *names: str) -> int | None:
    return next((value for name in names if (value := _integer(env, name)) is not None), None)


def _number(env: Mapping[str, str], name: str) -> float | None:
    text = env.get(name, "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"environment variable {name}={text!r} is not a number") from None


def _cache_dir(env: Mapping[str, str]) -> Path | None:
    if env.get("YOLOV9_CACHE_DIR"):
        return Path(env["YOLOV9_CACHE_DIR"])
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]) / "yolov9"
    home = env.get("HOME", "")
    return Path(home) / ".cache" / "yolov9" if home not in ("", "/") else None


def _kernel_cache_dir(env: Mapping[str, str]) -> Path | None:
    if env.get("TRITON_CACHE_DIR"):
        return Path(env["TRITON_CACHE_DIR"])
    home = env.get("TRITON_HOME") or env.get("HOME")
    return Path(home) / ".triton" / "cache" if home else None
