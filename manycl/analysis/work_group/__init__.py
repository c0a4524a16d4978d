"""Work-group functions: OpenCL C text in which a kernel's work-items are loops, for devices of a compiler and threads.

The field's terms (pocl; Jääskeläinen and others, *pocl: A Performance-Portable OpenCL Implementation*, IJPP 2015,
section 4): a *parallel region* is a part of a kernel that all work-items run before any of them goes on; a private
variable that outlives its region is kept in a *context array*, an element for each work-item. Beyond pocl, loops that
all work-items run equally often are taken apart like barriers, so that the loop over work-items, which has no
dependences, is the innermost one, and becomes vectors.

May import, of analysis: reading, texts, work_group.passes.
"""
