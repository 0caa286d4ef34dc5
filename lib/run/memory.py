"""The memory that this process may use."""

import os
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
NVIDIA = Path("/dev/nvidiactl")  # where there is an NVIDIA driver


def there() -> float:
    """Bytes of memory of the machine, or fewer where a control group allows fewer, as a container or a cluster's job
    does."""
    return min([float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")), *_limits()])


def for_models() -> tuple[float, int]:
    """(bytes, how many) of the memories that models are held in: the smallest GPU's and the number of GPUs, where there
    are some, else `there` and 1."""
    if NVIDIA.exists():
        import torch

        if gpus := torch.cuda.device_count():
            return float(min(torch.cuda.get_device_properties(k).total_memory for k in range(gpus))), gpus
    return there(), 1


def _limits() -> list[float]:
    """Limits of the process's control group and those above it, in either version of the interface."""
    membership, found = Path("/proc/self/cgroup"), []
    for line in membership.read_text().splitlines() if membership.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root, name = (GROUPS / "memory", "memory.limit_in_bytes") if controllers else (GROUPS, "memory.max")
        group = root / path.lstrip("/")
        for place in (group, *group.parents):
            limit = place / name
            if place.is_relative_to(root) and limit.is_file() and (text := limit.read_text().strip()).isdecimal():
                found.append(float(text))
    return found
