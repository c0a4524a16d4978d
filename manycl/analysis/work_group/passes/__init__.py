"""Changes of a kernel's text before it becomes a work-group function, and what they need to know."""
