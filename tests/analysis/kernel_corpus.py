"""The project's own corpus of OpenCL kernels: sources in ``corpus/*.cl``, launches and expectations beside them.

``corpus_constructs.py`` says which kernels show which construct of OpenCL C.
"""

import corpus_access
import corpus_arithmetic
import corpus_control
import corpus_groups
import corpus_language
import corpus_linear
import corpus_loops
import corpus_published
import corpus_suites
import corpus_tangles
import corpus_traps
import corpus_vectors

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
