"""Reports of the analysis: costs, accesses, regions and versions in words, JSON and pictures.

May import, of report: its modules, charts."""
