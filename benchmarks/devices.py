"""What devices and their drivers cost and reach: runs a benchmark of ``devices_figures``, by its name and options."""

from __future__ import annotations

import common

if __name__ == "__main__":
    common.chosen("devices_figures")
