"""Dense Cholesky kernels: LAPACK and BLAS by SciPy on the CPU, PyTorch's on a GPU.

On the CPU PyTorch's take 200 times SciPy's time for a triangle and one right-hand side, and twice the multiplications for a
matrix times its own adjoint. SciPy's work in place where a matrix lies column by column, as all of these do.

Reference: J. W. Demmel, Applied Numerical Linear Algebra, SIAM 1997, section 2.7.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from sciml.typing import Array


class OnCpu:
    """Steps of a block Cholesky factorization on dense matrices, of which only lower triangles count: LAPACK and BLAS.

    Without SciPy's checks: those take longer for small ones.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._kind = np.dtype(np.complex128 if dtype.is_complex else np.float64)
        like = (np.zeros(1, dtype=self._kind),)
        (self._potrf,) = scipy.linalg.get_lapack_funcs(("potrf",), like)
        names = "trsm", "herk" if dtype.is_complex else "syrk", "trsv", "gemv", "gemm"
        self._trsm, self._herk, self._trsv, self._gemv, self._gemm = scipy.linalg.get_blas_funcs(names, like)

    def matrices(self, values: Tensor) -> Any:
        """Matrices ``(E, m, n)`` as these work on them."""
        return values.numpy()

    def vectors(self, values: Tensor) -> Any:
        """A copy of vectors ``(n, c)`` as these work on them."""
        # What serves one vector alone is faster.
        return (values[:, 0] if values.shape[1] == 1 else values).numpy().copy()

    def tensor(self, vectors: Any) -> Tensor:
        """The other way around."""
        return torch.from_numpy(vectors).view(len(vectors), -1)

    def index(self, numbers: Array) -> Any:
        """Numbers of unknowns, by which vectors are indexed."""
        return numbers

    def zeros(self, height: int, width: int) -> Any:
        """A matrix of zeros."""
        return np.zeros((height, width), dtype=self._kind, order="F")

    def cholesky(self, matrix: Any, shift: float) -> Any:
        """The lower Cholesky factor of a matrix plus ``shift`` times one, in the matrix's place.

        Raises:
            numpy.linalg.LinAlgError: it is not positive definite.
        """
        diagonal = np.arange(len(matrix))
        matrix[diagonal, diagonal] += shift
        corner, failed = self._potrf(matrix, lower=1, clean=1, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        return corner

    def divided(self, below: Any, corner: Any) -> Any:
        """A matrix times the inverse of a factor's adjoint, in the matrix's place."""
        return self._trsm(1.0, corner, below, side=1, lower=1, trans_a=2, overwrite_b=1)

    def lessened(self, rest: Any, below: Any) -> Any:
        """A matrix less another times its own adjoint, in the first one's place."""
        return self._herk(-1.0, below, beta=1.0, c=rest, lower=1, overwrite_c=1)

    def solved(self, corner: Any, right: Any, *, adjoint: bool) -> Any:
        """The solution for a factor, or for its adjoint."""
        if right.ndim == 1:
            return self._trsv(corner, right, lower=1, trans=2 * adjoint)
        return self._trsm(1.0, corner, right, lower=1, trans_a=2 * adjoint)

    def times(self, below: Any, right: Any, *, adjoint: bool) -> Any:
        """A matrix, or its adjoint, times vectors."""
        if right.ndim == 1:
            return self._gemv(1.0, below, right, trans=2 * adjoint)
        return self._gemm(1.0, below, right, trans_a=2 * adjoint)


class OnDevice:
    """The same steps by PyTorch, on the device that is given."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._like = torch.empty(0, dtype=dtype, device=device)

    def matrices(self, values: Tensor) -> Any:
        return values

    def vectors(self, values: Tensor) -> Any:
        return values.clone()

    def tensor(self, vectors: Any) -> Tensor:
        return vectors

    def index(self, numbers: Array) -> Any:
        return torch.from_numpy(numbers).to(self._like.device)

    def zeros(self, height: int, width: int) -> Any:
        # Column by column, as the libraries below PyTorch have it.
        return self._like.new_zeros(width, height).mT

    def cholesky(self, matrix: Any, shift: float) -> Any:
        matrix.diagonal().add_(shift)
        corner, failed = torch.linalg.cholesky_ex(matrix)
        if bool(failed):
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        return corner

    def divided(self, below: Any, corner: Any) -> Any:
        return torch.linalg.solve_triangular(corner.mH, below, upper=True, left=False)

    def lessened(self, rest: Any, below: Any) -> Any:
        return rest.addmm_(below, below.mH, alpha=-1)

    def solved(self, corner: Any, right: Any, *, adjoint: bool) -> Any:
        return torch.linalg.solve_triangular(corner.mH if adjoint else corner, right, upper=adjoint)

    def times(self, below: Any, right: Any, *, adjoint: bool) -> Any:
        return (below.mH if adjoint else below) @ right


DenseKernels = OnCpu | OnDevice


def kernels(dtype: torch.dtype, device: torch.device) -> DenseKernels:
    """The kernels for a kind of numbers on a device."""
    return OnCpu(dtype) if device.type == "cpu" else OnDevice(dtype, device)
