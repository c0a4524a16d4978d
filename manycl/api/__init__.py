"""The Python API: queues, programs, kernels, events and prepared graphs, called the way PyOpenCL calls them.

May import report, cluster and the stages before."""
