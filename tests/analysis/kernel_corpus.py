"""The project's own corpus of OpenCL kernels: sources in ``corpus/*.cl``, launches and expectations beside them."""

import corpus_access

CASES = (*corpus_access.CASES,)
BY_NAME = {case.name: case for case in CASES}
