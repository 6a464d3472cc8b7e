"""Parallel computing: one fit on several processes (a process group), and many pieces of work in processes of their own."""

from sciml.parallel import process_group

__all__ = ["process_group"]
