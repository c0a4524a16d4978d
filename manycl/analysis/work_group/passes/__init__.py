"""Changes of a kernel's text before it becomes a work-group function, and what they need to know.

May import, of analysis: interpreter, reading, texts, work_group."""
