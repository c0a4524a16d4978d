"""How large the first slices of a launch are that nobody has measured: as its features tell."""

from __future__ import annotations

from collections.abc import Mapping

from manycl.graph.graph import Buffer, BufferArg, BufferKey, Launch, Version
from manycl.graph.host_version import analysed
from manycl.graph.sequence import is_sequence
from manycl.model.slices import shipped
from manycl.unforeseen import told


def first_slice(
    launch: Launch, chosen: Launch | Version, kind: str, buffers: Mapping[BufferKey, Buffer]
) -> float | None:
    """Work-items of a slice of an implementation of a launch, on a kind of device: what the predictors that come with
    manycl say. None where they know nothing of such devices, or the analysis tells no features."""
    if kind not in shipped().models or (isinstance(chosen, Version) and is_sequence(chosen)):
        return None
    program, kernel = analysed(chosen.program, chosen.kernel)
    if not program.tree:
        return None
    from manycl.analysis.service import launched
    from manycl.graph.known import known_launch

    local = chosen.local_size or (1,) * len(chosen.global_size)
    version = Version(program, kernel, chosen.global_size, local, annotations=chosen.annotations)
    sizes = {a.key: buffers[a.key].nbytes for a in launch.args if isinstance(a, BufferArg)}
    try:
        return shipped().points(launched(program, kernel.name, known_launch(launch, sizes, version)).features, kind)
    except Exception as error:
        told(error, f"looking for the features of kernel {chosen.kernel.name}")
        return None
