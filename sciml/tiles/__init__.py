"""Products of piecewise polynomials over all of space and time, and the sparse least squares that find their weights."""
