"""Reading: from text to a light syntax tree: preprocessing, parsing, types, and the facts of kernels in any launch.

May import, of analysis: its modules, symbolic."""
