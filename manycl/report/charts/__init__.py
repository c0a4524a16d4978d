"""Charts: Gantt charts as pictures, pages and Perfetto files, and graphs drawn."""
