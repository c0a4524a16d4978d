"""Models of time: how long launches and transfers take, from counted work and from what was measured.

May import graph and the stages before."""
