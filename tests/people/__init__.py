"""What people type: the code of the README's tutorials and how-to pages, run word for word."""
