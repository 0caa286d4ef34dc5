"""The memory that this process may use."""

import os
from pathlib import Path

GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def there() -> float:
    """Bytes of memory of the machine, or that its control group allows, as a container or a cluster's job has it."""
    found = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    for place in map(Path, GROUPS):
        if place.is_file() and (limit := place.read_text().strip()).isdecimal():
            found.append(float(limit))
    return min(found)
