"""Linear systems of Newton's method on grids: square ones by sparse factors, others by least squares."""

from __future__ import annotations

import numpy as np
import scipy
import torch

from sciml.typing import Array

DENSE = 4200
_SURE, _RANK, _SHIFT = 1e15, 1e-14, 1e-3


class SingularError(Exception):
    """A Jacobian leaves something free."""


def solved_square(jacobian: scipy.sparse.csr_array, rows: Array) -> Array:
    """The solution of a square system, refined once; a SingularError where there is none but rounding."""
    # Rows and columns of size one, whatever the units.
    columns = scipy.sparse.diags_array(1 / np.maximum(scipy.sparse.linalg.norm(jacobian, axis=0), 1e-300))
    across = jacobian @ columns
    scales = scipy.sparse.diags_array(1 / np.maximum(scipy.sparse.linalg.norm(across, axis=1), 1e-300))
    matrix = scipy.sparse.csc_matrix(scales @ across)
    try:
        factors = scipy.sparse.linalg.splu(matrix)
    except RuntimeError as error:
        raise SingularError from error
    size, wanted = len(rows), scales @ rows
    inverse = scipy.sparse.linalg.LinearOperator(
        (size, size), matvec=factors.solve, rmatvec=lambda y: factors.solve(y, trans="T"), dtype=np.float64
    )
    if scipy.sparse.linalg.onenormest(inverse) * scipy.sparse.linalg.norm(matrix, 1) > _SURE:
        raise SingularError
    found = factors.solve(wanted)
    return columns @ (found + factors.solve(wanted - matrix @ found))


def solved_least(jacobian: scipy.sparse.csr_array, rows: Array, patterns: int) -> Array:
    """The least-squares solution, by QR or one sparse system; at most ``patterns`` free combinations stay zero."""
    width = jacobian.shape[1]
    columns = 1 / np.maximum(scipy.sparse.linalg.norm(jacobian, axis=0), 1e-300)
    scaled = jacobian @ scipy.sparse.diags_array(columns)
    if width > DENSE:
        # As one sparse system, which does not square the condition number (Bjorck 1996, section 2.5.3).
        count = len(rows)
        system = scipy.sparse.block_array([[_SHIFT * scipy.sparse.eye_array(count), scaled], [scaled.T, None]])
        try:
            return (
                columns
                * scipy.sparse.linalg.splu(scipy.sparse.csc_matrix(system)).solve(np.concatenate([rows, np.zeros(width)]))[
                    count:
                ]
            )
        except RuntimeError as error:
            raise SingularError from error
    full = scaled.toarray()
    triangle = torch.linalg.qr(torch.from_numpy(np.column_stack([full, rows])), mode="r").R.numpy()
    pivots = np.abs(np.diag(triangle))[:width]
    if len(full) > width and pivots.min() > 10 * _RANK * pivots.max():
        return columns * scipy.linalg.solve_triangular(triangle[:width, :width], triangle[:width, width])
    found, _, rank, _ = scipy.linalg.lstsq(full, rows, cond=_RANK, lapack_driver="gelsy")
    if rank < width - patterns:
        raise SingularError
    return columns * found
