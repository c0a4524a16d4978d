"""Charts: Gantt charts as pictures, pages and Perfetto files, and graphs drawn.

May import, of report: its modules."""
