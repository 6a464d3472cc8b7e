"""Slabs of time: Radau IIA through stages, any discretization in space, and the Newton-Krylov method that solves them."""
