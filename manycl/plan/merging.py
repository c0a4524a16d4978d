"""When what the devices of a divided launch have written comes together in the host's memory.

Device-Hopping (Section 3.2) has two strategies: where parts of a launch write distinct parts of a buffer, the results
of each part are transferred as it has ended (1); else they stay on the device until the kernel has moved or ended (2).
Here parts are at any time valid where they were written, and go where somebody needs them, so both are right wherever
nothing has to be put together, and one may choose. What has to be (merge kernels, differences) stays, as in the paper.
"""

from __future__ import annotations

from typing import Literal

Merging = Literal["automatic", "each", "last"]
"""``each``: what a part has written, and the run does not write again, goes to the host as soon as the part has ended:
little is lost or waited for if its device leaves. ``last``: it stays until somebody needs it: nothing is transferred in
vain. ``automatic``: as ``each`` for launches that are on one device at a time, else as ``last``."""
SENT = "merging"
"""The entry of a run's details with what was asked for, and how many parts and bytes have gone to the host so."""
