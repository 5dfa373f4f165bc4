"""Fused CUDA kernel for two-view score matrices: three matrix products, a log-sum-exp and one write.

float32 factors are split into two float16 numbers, x = hi + lo. Then hi hi' + hi lo' + lo hi' is
one float16 product of three times the width, with the speed of float16 tensor cores and an error
close to that of float32. The module is imported only if there is a CUDA tensor.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl

from .log_sums import LogRatios, TermProduct

ROWS, COLUMNS = 64, 32
"""Numbers of rows and columns of the score matrix in one tile of the kernel."""

FACTOR_RANGE = 256.0
"""Largest absolute value of a split factor; factors are scaled to it before the split."""

MAX_WIDTH = 256
"""Largest number of columns of a split factor; it has three columns per shared latent, so that 85 latents fit."""


@triton.jit
def _load(pointer, lines, inside, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    # rows `lines` of a row-major matrix, with zeros for rows that are not inside
    inner = tl.arange(0, WIDTH)
    return tl.load(
        pointer + lines[:, None] * WIDTH + inner[None, :], mask=inside[:, None], other=0.0
    )


@triton.jit
def _joint_kernel(  # type: ignore[no-untyped-def]
    n_left, n_right, n_row, n_column, n_scale,
    a_left, a_right, a_row, a_column, a_scale,
    b_left, b_right, b_row, b_column, b_scale,
    out, n_rows, n_columns, n_strips,
    N_WIDTH: tl.constexpr, A_WIDTH: tl.constexpr, B_WIDTH: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, STRIP: tl.constexpr, BEST_ONLY: tl.constexpr,
):  # fmt: skip
    """Compute the LLRs of BM rows and of a strip of STRIP * BN columns of the score matrix.

    n, a and b are three matrix products of the factors of rows and columns: n is the numerator of
    the LLR, and log(exp a + exp b + 1) the denominator. Per product, the arguments are the factors
    split into float16 numbers (left for rows, right for columns), the one-sided terms (row, column)
    and the scale of the product. With BEST_ONLY the kernel writes the largest LLR of each row and
    lane (subset of columns, see `JointScorer.lane_maxima`), else all LLRs.
    """
    program = tl.program_id(0)
    tile, strip = program // n_strips, program % n_strips
    rows = tile * BM + tl.arange(0, BM)
    in_rows = rows < n_rows
    n_l = _load(n_left, rows, in_rows, N_WIDTH)
    a_l = _load(a_left, rows, in_rows, A_WIDTH)
    b_l = _load(b_left, rows, in_rows, B_WIDTH)
    n_r = tl.load(n_row + rows, mask=in_rows, other=0.0)[:, None]
    a_r = tl.load(a_row + rows, mask=in_rows, other=0.0)[:, None]
    b_r = tl.load(b_row + rows, mask=in_rows, other=0.0)[:, None]
    n_s, a_s, b_s = tl.load(n_scale), tl.load(a_scale), tl.load(b_scale)
    best = tl.full((BM, BN), float("-inf"), dtype=tl.float32)
    for j in range(STRIP):
        columns = (strip * STRIP + j) * BN + tl.arange(0, BN)
        inside = columns < n_columns
        a = tl.dot(a_l, tl.trans(_load(a_right, columns, inside, A_WIDTH))) * a_s
        a += a_r + tl.load(a_column + columns, mask=inside, other=0.0)[None, :]
        b = tl.dot(b_l, tl.trans(_load(b_right, columns, inside, B_WIDTH))) * b_s
        b += b_r + tl.load(b_column + columns, mask=inside, other=0.0)[None, :]
        high = tl.maximum(a, b)
        top = tl.maximum(high, 0.0)
        against = top + tl.log(1.0 + tl.exp(-tl.abs(high)) + tl.exp(tl.minimum(a, b) - top))
        n = tl.dot(n_l, tl.trans(_load(n_right, columns, inside, N_WIDTH))) * n_s
        value = n + n_r + tl.load(n_column + columns, mask=inside, other=0.0)[None, :] - against
        if BEST_ONLY:
            best = tl.maximum(best, tl.where(inside[None, :], value, float("-inf")))
        else:
            position = rows[:, None].to(tl.int64) * n_columns + columns[None, :]
            tl.store(out + position, value, mask=in_rows[:, None] & inside[None, :])
    if BEST_ONLY:
        lanes = strip * BN + tl.arange(0, BN)
        tl.store(
            out + rows[:, None].to(tl.int64) * (n_strips * BN) + lanes[None, :],
            best,
            mask=in_rows[:, None],
        )


def _split(side: torch.Tensor, *, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Split each number x of a factor into two float16 numbers, x / scale = hi + lo.

    The result is cached as an attribute of the tensor `side`.

    side : (n, width + 2) factor; its last two columns, the one-sided terms, are left out
    left : True for the left factor of a product, False for the right one
    return : (n, w) float16 columns [hi, hi, lo], or [hi, lo, hi] for a right factor, padded with
        zeros until w is a power of two; and the scale
    """
    name = "_mvplda_left" if left else "_mvplda_right"
    if not hasattr(side, name):
        x = side[:, :-2]
        scale = x.abs().max().clamp(min=1e-30) / FACTOR_RANGE
        # float16 has ten bits of mantissa: two numbers hold a float32 to 2^-21
        high = (x / scale).half()
        low = (x / scale - high).half()
        split = torch.cat([high, high, low] if left else [high, low, high], 1)
        width = max(16, triton.next_power_of_2(split.shape[1]))
        setattr(side, name, (torch.nn.functional.pad(split, (0, width - split.shape[1])), scale))
    split_and_scale: tuple[torch.Tensor, torch.Tensor] = getattr(side, name)
    return split_and_scale


class JointScorer:
    """Computes a matrix of LLRs with the fused kernel on a GPU.

    log_ratios : the likelihood ratio as matrix factors; `fits` must be True for it
    strip : number of tiles of columns that one program of the kernel scores
    exchanged : True to compute the transposed matrix, with tests as rows
    """

    def __init__(self, log_ratios: LogRatios, strip: int = 4, *, exchanged: bool = False) -> None:
        self.operands = []
        for product in log_ratios.products:
            left, right = torch.as_tensor(product.left), torch.as_tensor(product.right)
            row, column = left[:, -2].contiguous(), right[:, -1].contiguous()
            if exchanged:
                left, right, row, column = right, left, column, row
            l_split, l_scale = _split(left, left=True)
            r_split, r_scale = _split(right, left=False)
            self.operands.append((l_split, r_split, row, column, l_scale * r_scale))
        self.strip = strip
        self.shape = (len(self.operands[0][0]), len(self.operands[0][1]))

    @property
    def strips(self) -> int:
        """Number of strips (ranges of columns that one program of the kernel scores)."""
        return int(triton.cdiv(self.shape[1], COLUMNS * self.strip))

    def _launch(self, out: torch.Tensor, best_only: bool) -> None:
        grid = (triton.cdiv(self.shape[0], ROWS) * self.strips,)
        _joint_kernel[grid](
            *(value for operand in self.operands for value in operand),
            out,
            *self.shape,
            self.strips,
            *(operand[0].shape[1] for operand in self.operands),
            BM=ROWS,
            BN=COLUMNS,
            STRIP=self.strip,
            BEST_ONLY=best_only,
            num_warps=4,
            num_stages=2,
        )

    def fill(self, out: torch.Tensor) -> None:
        """Write all LLRs into a contiguous float32 tensor, (rows, columns)."""
        self._launch(out, best_only=False)

    def lane_maxima(self) -> torch.Tensor:
        """Return the highest LLR of each row in each lane (subset of columns), (rows, lanes).

        The score matrix is not stored. A strip consists of tiles of `COLUMNS` consecutive columns.
        It has `COLUMNS` lanes: lane i holds column i of each tile of the strip.
        """
        out = torch.empty(
            (self.shape[0], self.strips * COLUMNS),
            dtype=torch.float32,
            device=self.operands[0][0].device,
        )
        self._launch(out, best_only=True)
        return out

    def lane_columns(self, lanes: torch.Tensor) -> torch.Tensor:
        """Return the column numbers of each lane (subset of columns), (..., strip).

        Some numbers may lie beyond the last column; callers must ignore them. See `lane_maxima`.

        lanes : (...) numbers of lanes
        """
        first = lanes // COLUMNS * (COLUMNS * self.strip) + lanes % COLUMNS
        return first[..., None] + COLUMNS * torch.arange(self.strip, device=lanes.device)


def fits(log_ratios: LogRatios) -> bool:
    """Return whether the kernel supports these ratios.

    It does for one product in the numerator and two in the denominator, as with two views, if the
    factors are float32 and, split into float16 numbers, at most `MAX_WIDTH` wide.
    """
    widths = [product.left.shape[1] for product in log_ratios.products]
    return (
        log_ratios.product_counts == (1, 2)
        and log_ratios.dtype == "float32"
        and 3 * (max(widths) - 2) <= MAX_WIDTH
    )


def best_rows(log_ratios: LogRatios, top: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows with the highest LLRs in each column, best first, without storing the matrix.

    The highest maxima over lanes (subsets of rows, see `JointScorer.lane_maxima`) show which lanes
    contain the best rows. Only these lanes are scored again.

    top : number of rows per column
    return : row numbers and LLRs, (columns, top) each
    """
    # the kernel returns the best columns per row: exchange rows and columns for the best rows per column
    scorer = JointScorer(log_ratios, strip=32, exchanged=True)
    maxima = scorer.lane_maxima()
    lanes = maxima.topk(min(top, maxima.shape[1]), dim=1).indices
    n_columns, n_rows = scorer.shape
    numbers, scores = [], []
    step = max(1, 2**22 // (lanes.shape[1] * scorer.strip))
    for start in range(0, n_columns, step):
        columns = slice(start, start + step)
        rows = scorer.lane_columns(lanes[columns]).flatten(1)
        outside = rows >= n_rows
        # rows beyond the last are scored as the last, and masked out
        rows = rows.clamp(max=n_rows - 1)
        value = torch.as_tensor(log_ratios.ratios(partial(_dots, columns=columns, rows=rows))[0])
        best = value.masked_fill(outside, float("-inf")).topk(top, dim=1)
        numbers.append(rows.gather(1, best.indices))
        scores.append(best.values)
    return torch.cat(numbers), torch.cat(scores)


def _dots(product: TermProduct, columns: slice, rows: torch.Tensor) -> torch.Tensor:
    """Return the values of a matrix product for the listed rows of each column.

    product : factors of the product
    columns : range of columns
    rows : (columns, rows per column) row numbers
    return : values of the shape of `rows`
    """
    return torch.einsum("crw,cw->cr", product.left[rows], product.right[columns])
