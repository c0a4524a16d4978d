"""The project's own corpus of OpenCL kernels: sources in ``corpus/*.cl``, launches and expectations beside them.

``corpus_constructs.py`` says which kernels show which construct of OpenCL C.
"""

from tests.analysis.corpus import (
    access,
    arithmetic,
    control,
    floats,
    groups,
    jumps,
    language,
    linear,
    loops,
    published,
    suites,
    tangles,
    traps,
    vectors,
)

CASES = (
    *access.CASES,
    *control.CASES,
    *floats.CASES,
    *loops.CASES,
    *arithmetic.CASES,
    *language.CASES,
    *vectors.CASES,
    *groups.CASES,
    *jumps.CASES,
    *traps.CASES,
    *published.CASES,
    *linear.CASES,
    *suites.CASES,
    *tangles.CASES,
)
BY_NAME = {case.name: case for case in CASES}
