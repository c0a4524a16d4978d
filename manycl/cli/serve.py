"""``manycl serve``: devices that are warm for every program of the user that asks for them."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any

from manycl.errors import DeviceError, ManyclError

HELP = "keep devices and programs warm, in processes of their own, for this user's programs"
_EPILOG = """\
examples:
  manycl serve &                          until it is stopped; programs use it with Queue(serve=True), or MANYCL_SERVE=1
  manycl run app.json --serve
  manycl serve --status --json
  manycl serve --stop                     processes that are in use end with who uses them
exit status: 0 done, 2 there is a service already, or none (docs/serve.md)
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--status", action="store_true", help="say what the service does")
    what.add_argument("--stop", action="store_true", help="end the service")
    parser.add_argument("--json", action="store_true", help="print one JSON object, also when it is ready")


def run(args: argparse.Namespace) -> int:
    if args.status:
        return _status(args.json)
    if args.stop:
        from manycl.drivers.serve.client import stop

        pid = stop()
        print(json.dumps({"stopped": pid}) if args.json else f"the service (process {pid}) ends")
        return 0
    return _serve(args.json)


def _serve(as_json: bool) -> int:
    if sys.platform != "linux":
        raise ManyclError("manycl serve needs Linux: processes share memory by descriptors there")
    from manycl.drivers.serve.server import Server

    def ends(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, ends)
    try:
        with Server() as server:  # whoever reads that it is ready may end it at once
            ready = {"socket": server.path}
            print(json.dumps(ready) if as_json else f"manycl serves at {server.path}; Ctrl-C ends it", flush=True)
            server.run()
    except KeyboardInterrupt:
        return 0  # that is how it is ended
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _status(as_json: bool) -> int:
    from manycl.drivers.serve.client import status

    try:
        found = status()
    except DeviceError as error:
        if as_json:
            print(json.dumps({"running": False, "why": error.message}))
            return 2
        raise
    if as_json:
        print(json.dumps({"running": True, **found}))
        return 0
    print(f"process {found['pid']} serves at {found['socket']}; {found['served']} clients so far")
    if found["failure"]:
        print(f"no more processes are started: {found['failure']}")
    for one in found["processes"]:
        print(f"  {_line(one)}")
    return 0


def _line(one: dict[str, Any]) -> str:
    devices = f", open: {', '.join(one['devices'])}" if one["devices"] else ""
    return f"process {one['pid']}: {one['state']}, {one['clients']} clients so far{devices}"
