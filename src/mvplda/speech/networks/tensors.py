"""torch, or an error that names the extra which brings it: every module here takes torch from this one."""

from __future__ import annotations

from collections.abc import Iterator

from ..._optional import need

need("torch")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from ...exceptions import ParameterError  # noqa: E402

__all__ = ["Tensor", "choose_device", "functional", "nn", "pieces", "torch", "valid_frames"]


def choose_device(name: str) -> torch.device:
    """The device of a setting; "auto" is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ParameterError(f"device is auto, cpu or cuda; got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ParameterError(f"device is {name!r}, but torch {torch.__version__} sees no GPU: use auto or cpu")
    return device


def valid_frames(lengths: Tensor, longest: int) -> Tensor:
    """(B, T) True where an utterance has a frame, False where it is padded."""
    return torch.arange(longest, device=lengths.device)[None, :] < lengths[:, None]


def pieces(x: Tensor, size: int) -> Iterator[Tensor]:
    """Rows of x, so many at a time."""
    return (x[start : start + size] for start in range(0, len(x), size))
