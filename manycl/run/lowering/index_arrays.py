"""Index arrays: what ranges read where the contents of arrays decide (``for (k = rows[i]; k < rows[i + 1]; k++)``), by
those contents, where the host has them as a run begins, and looking at them takes less than moving what is not read."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from manycl.analysis import service
from manycl.errors import ManyclError
from manycl.graph.access import Access
from manycl.graph.division import Division, identity
from manycl.graph.graph import BufferArg, BufferKey
from manycl.graph.known import known_launch
from manycl.group_range import GroupRange
from manycl.machine import HOST
from manycl.model.transfer import LARGE
from manycl.plan.problem import Problem
from manycl.region import Region, union
from manycl.run.data.coherence import Directory
from manycl.run.data.contents import HostContents, LookedAt
from manycl.utilities.unforeseen import told

Found = list[dict[BufferKey, Access]]


def narrow(
    contents: HostContents,
    problem: Problem,
    directory: Directory,
    division: Division,
    ranges: Sequence[GroupRange],
    found: Found,
    memories: Sequence[int],
) -> list[LookedAt]:
    """Take from what ranges of a launch read (``found``) what they do not by index arrays, and return these.
    ``memories``: that of each range."""
    launch, sizes = division.launch, division.sizes
    of = {i: a.key for i, a in enumerate(launch.args) if isinstance(a, BufferArg) and a.nbytes is None}
    read = [i for i, key in of.items() if key not in launch.writes and len(division.arguments[key]) == 1]
    if type(division) is not Division:  # a function of Python may read more
        return []
    lacks: dict[int, dict[int, int]] = {}  # bytes that memories do not hold of what their ranges read, by argument
    for memory in {*memories} - {HOST}:
        mine = [access for access, at in zip(found, memories, strict=True) if at == memory]
        lacks[memory] = {i: _missing(directory, of[i], memory, mine, sizes[of[i]]) for i in read}
    known = contents.hulls.get(name := identity(launch, sizes)) or {}
    if not known and max((sum(missing.values()) for missing in lacks.values()), default=0) < LARGE:
        return []
    from manycl.analysis.regions.counted import SECONDS  # few programs need it

    narrowed, used = [dict(access) for access in found], dict[BufferKey, LookedAt]()
    try:
        # (launches that share their facts may differ in scalars that count here)
        facts = service.launched(launch.program, launch.kernel.name, known_launch(launch, sizes))
        plain, written = facts.looked({}, 0), problem.graph.last_writers
        needed = {i: arrays for i in read if (arrays := plain.index_arrays(i))}
        for i, arrays in list(needed.items()):
            nbytes = sum(sizes[of[n]] if n in read else inf for n in arrays)  # (inf: a view, or it is written)
            if not any(place[0] == i for place in known) and nbytes > max(missing[i] for missing in lacks.values()):
                del needed[i]
        fixed = [i for i in frozenset().union(*needed.values()) if of[i] not in written]
        seen = {i: looked for i in fixed if (looked := contents.look(of[i], directory)) is not None}
        for access, groups, memory in zip(narrowed, ranges, memories, strict=True):
            if memory == HOST:
                continue
            saved = problem.estimates.transfer(sum(lacks[memory][i] for i in needed), HOST, memory)
            budget = int(saved / SECONDS) // memories.count(memory)
            regions = facts.looked({i: a.data for i, a in seen.items()}, budget)
            for i in needed:
                place = i, groups, *(seen.get(n) for n in sorted(needed[i]))
                hull = known.get(place) or regions.hull(i, groups)
                if hull is not None:
                    known[place] = hull
                    before = access[of[i]]
                    access[of[i]] = Access(before.reads & Region.span(*hull), before.writes, before.overwrites)
                    used.update((of[n], a) for n, a in seen.items() if n in needed[i])
    except ManyclError:
        return []
    except Exception as error:
        told(error, f"looking at the index arrays of {launch.name}")
        return []
    if known:
        contents.hulls.keep(name, known)
    found[:] = narrowed
    return [*used.values()]


def _missing(directory: Directory, key: BufferKey, memory: int, mine: Found, nbytes: int) -> int:
    wanted = union(access[key].reads for access in mine)
    return sum((part.region & wanted).nbytes for part in directory.missing(key, memory, nbytes))
