"""Launches of the corpus as the analysis is asked about them."""

from __future__ import annotations

import numpy as np

from manycl.analysis.known_launch import KnownLaunch
from tests.analysis.corpus_case import Buffer, Same
from tests.analysis.corpus_case import Launch as CaseLaunch


def launch_of(ndrange: CaseLaunch) -> KnownLaunch:
    scalars, sizes, same = {}, {}, {}
    for index, argument in enumerate(ndrange.arguments):
        if isinstance(argument, Buffer):
            sizes[index] = argument.nbytes
        elif isinstance(argument, Same):
            same[index], sizes[index] = argument.index, ndrange.buffers[argument.index].nbytes
        elif isinstance(argument, np.generic | np.ndarray):
            scalars[index] = np.asarray(argument).tobytes()
    return KnownLaunch(ndrange.global_size, ndrange.local_size, ndrange.offset, scalars, sizes, same)
