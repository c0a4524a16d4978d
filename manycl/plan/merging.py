"""Merging: when the results of a divided launch's devices are written to the host's memory.

Device-Hopping (Section 3.2) has two strategies. Where parts of a launch write distinct parts of a buffer, the results
of each part are transferred as it has ended (1); else they stay on the device until the kernel has moved or ended (2).
Here parts are at any time valid where they were written, and are transferred where they are needed, so both are right
wherever nothing has to be combined, and one may choose. What has to be combined (merge kernels, differences) is
combined as in the paper.
"""

from __future__ import annotations

from typing import Literal

Merging = Literal["automatic", "each", "last"]
"""The time at which results of parts are transferred. ``each``: the results of a part that the run does not write again
are transferred as soon as the part has ended; little is lost or waited for if its device leaves. ``last``: they stay
until they are needed, so no transfer is in vain. ``automatic``: as ``each`` for launches that are on one device at a
time, else as ``last``."""
SENT = "merging"
"""The key in a run's details of the strategy, and of how many parts and bytes were transferred early."""
