"""``manycl analyze`` of an application file: the versions of its kernels."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from manycl.errors import ManyclError
from manycl.expressions import suggest


def run(args: argparse.Namespace, kernels: Sequence[str]) -> int:
    """Print the versions of an application's kernels, or of those that are named."""
    from manycl.applications.load import load_application
    from manycl.cli import options
    from manycl.graph.graph import Launch
    from manycl.report.analysis import versions

    for name in ("include", "build_options", "global_size", "picture"):
        if getattr(args, name):
            option = name.removesuffix("_size").replace("_", "-")
            raise ManyclError(f"{args.file}: --{option} goes with OpenCL C, not with a specification")
    application = load_application(args.file, options.pairs(args.define, "-D"))
    sizes = {key: buffer.nbytes for key, buffer in application.graph.buffers.items()}
    launches = [task for task in application.graph.nodes if isinstance(task, Launch)]
    known = {name: None for launch in launches for name in (launch.kernel.name, launch.name)}
    for name in kernels:
        if name not in known:
            raise ManyclError(f"{args.file} has no kernel {name!r}{suggest(name, known)}")
    chosen = [x for x in launches if not kernels or x.kernel.name in kernels or x.name in kernels]
    views = [versions.versions_of(launch, sizes) for launch in chosen if launch.versions]
    if args.json:
        print(json.dumps({"file": args.file, "launches": [versions.as_dict(view) for view in views]}, indent=2))
        return 0
    for view in views:
        print("\n".join([*versions.lines(view), ""]))
    if not views:
        print(f"{args.file}: no kernel has versions")
    return 0
