"""Visits of the grid on the workers of a Dask cluster.

The cluster is the one whose scheduler the environment variable COMPENDIUM_SCHEDULER names (set by `python -m
lib.reproduce --workers N` or `--scheduler ADDRESS`, and inherited by the notebooks). Workers read and write the same
folders as this process, so these lie on a file system that all of them see; what travels is the visit's name, and that
it is done.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lib.errors import InputError
from lib.paths import OUTPUT

SCHEDULER = "COMPENDIUM_SCHEDULER"
_one_at_a_time = threading.Lock()  # in a worker: visits share its loaded model, whatever its number of threads


class ClusterError(RuntimeError):
    """Visits failed on the workers, or no worker could be kept."""


def address() -> str | None:
    """The scheduler's address; None where visits run in this process."""
    return os.environ.get(SCHEDULER)


def each(run: Callable, visits: Sequence) -> Iterator:
    """`run(visit)` for each of the visits on some worker, yielded as they are finished.

    A visit whose worker dies is given to another one, three times at most. One that raises does not stop the others:
    raises ClusterError with the first error and the names of all that failed when the others are done.
    """
    from dask.distributed import Client, as_completed

    if not visits:
        return
    failed = {}
    with Client(address(), set_as_default=False) as client:
        futures = {client.submit(_run, run, visit, str(OUTPUT), pure=False): visit for visit in visits}
        for future in as_completed(futures, loop=client.loop):
            # What is done is let go of: else it would be done again when the worker that did it dies.
            visit, error = futures.pop(future), future.exception()
            del future
            if error:
                failed[visit.label] = error
            else:
                yield visit
    if failed:
        first = next(iter(failed.values()))
        raise ClusterError(f"{len(failed)} of {len(visits)} visits failed: {'; '.join(failed)}. The first says: "
                           f"{type(first).__name__}: {first}. The others are done and kept") from first


def _run(run: Callable, visit, output: str) -> None:
    """In a worker."""
    _take_a_gpu()
    if str(OUTPUT) != output:
        raise InputError(f"this worker writes into {OUTPUT}, and the run is in {output}; start workers in the same "
                         "checkout, with the same COMPENDIUM_OUTPUT")
    with _one_at_a_time:
        run(visit)


def _take_a_gpu() -> None:
    """Of several GPUs that this worker of a local cluster sees, use one: the workers, which are numbered, take turns.
    Before torch has looked for GPUs."""
    from dask.distributed import get_worker

    number, named = get_worker().name, os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = [str(k) for k in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))] if named is None else named.split(",")
    if len(gpus) > 1 and isinstance(number, int):
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]


@contextmanager
def started(workers: int | None, scheduler: str | None) -> Iterator[None]:
    """While open, visits go to this many new processes of this machine, or to the scheduler of that address; with
    neither they run in this process. Raises InputError when the scheduler cannot be reached or has no worker."""
    if workers:
        from dask.distributed import LocalCluster

        threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // workers))
        with LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address=None,
                          env={"OMP_NUM_THREADS": threads}) as cluster, _named(cluster.scheduler_address):
            yield
    elif scheduler:
        _check(scheduler)
        with _named(scheduler):
            yield
    else:
        yield


@contextmanager
def _named(scheduler: str) -> Iterator[None]:
    before = os.environ.get(SCHEDULER)
    os.environ[SCHEDULER] = scheduler
    try:
        yield
    finally:
        if before is None:
            del os.environ[SCHEDULER]
        else:
            os.environ[SCHEDULER] = before


def _check(scheduler: str) -> None:
    from dask.distributed import Client

    try:
        with Client(scheduler, timeout=10, set_as_default=False) as client:
            found = len(client.scheduler_info(n_workers=-1)["workers"])
    except (OSError, ValueError) as error:
        raise InputError(f"the scheduler {scheduler!r} cannot be reached ({error}); start it with `dask scheduler` "
                         "and give its address as tcp://host:8786") from error
    if not found:
        raise InputError(f"the scheduler {scheduler} has no worker; start some in this checkout, on machines that see "
                         f"its files: `dask worker {scheduler} --nthreads 1`")
