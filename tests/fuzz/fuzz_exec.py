"""Runs cases as a program of PyOpenCL's does: alone, or started by ``manycl exec``. Pickled ones come by standard
input, with the name of the platform, and what they leave, or the words of an error, goes out."""

from __future__ import annotations

import os
import pickle
import sys

from tests.analysis import truth


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    del truth.UNOPTIMISED[truth.POCL]  # compilers are compared as programs have them
    os.dup2(2, 1)  # where implementations may say what they like
    while True:
        try:
            platform, case, launch, start = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            told: object = truth.run_range(case, launch, 0, 0, None, start, platform)
        except truth.cl.Error as error:
            told = str(error)
        pickle.dump(told, out)
        out.flush()


if __name__ == "__main__":
    main()
