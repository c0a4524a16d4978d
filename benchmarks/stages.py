"""What single stages cost (analysis, models, plans, runs), and how near they come to what is right: runs a benchmark of
``stages_figures``, by its name and options."""

from __future__ import annotations

import common

if __name__ == "__main__":
    common.chosen("stages_figures")
