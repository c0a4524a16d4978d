"""Reservations of devices between processes: files and sockets in the user's runtime folder, without a service.

May import utilities and the stages before."""
