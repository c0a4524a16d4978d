"""How many operations and bytes a launch takes, in symbols and in numbers."""
