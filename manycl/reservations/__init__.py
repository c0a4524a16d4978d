"""Who has reserved what of this machine: files and sockets in the user's runtime folder, and no service between."""
