"""The project's own corpus of OpenCL kernels: sources in ``corpus/*.cl``, launches and expectations beside them."""

import corpus_access
import corpus_control
import corpus_groups
import corpus_published
import corpus_vectors

CASES = (
    *corpus_access.CASES,
    *corpus_control.CASES,
    *corpus_vectors.CASES,
    *corpus_groups.CASES,
    *corpus_published.CASES,
)
BY_NAME = {case.name: case for case in CASES}
