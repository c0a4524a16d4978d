"""What every folder may use: caches, other programs within limits, Ctrl-C, checks of arguments, files."""
