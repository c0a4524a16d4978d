"""The project's own corpus of OpenCL kernels: sources in ``corpus/*.cl``, launches and expectations beside them.

``corpus_constructs.py`` says which kernels show which construct of OpenCL C.
"""

from tests.analysis import (
    corpus_access,
    corpus_arithmetic,
    corpus_control,
    corpus_groups,
    corpus_language,
    corpus_linear,
    corpus_loops,
    corpus_published,
    corpus_suites,
    corpus_tangles,
    corpus_traps,
    corpus_vectors,
)

CASES = (
    *corpus_access.CASES,
    *corpus_control.CASES,
    *corpus_loops.CASES,
    *corpus_arithmetic.CASES,
    *corpus_language.CASES,
    *corpus_vectors.CASES,
    *corpus_groups.CASES,
    *corpus_traps.CASES,
    *corpus_published.CASES,
    *corpus_linear.CASES,
    *corpus_suites.CASES,
    *corpus_tangles.CASES,
)
BY_NAME = {case.name: case for case in CASES}
