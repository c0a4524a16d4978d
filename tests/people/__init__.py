"""What people type: the code of tutorials, how-to pages and the notebook, run word for word."""
