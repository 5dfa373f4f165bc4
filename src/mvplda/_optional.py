"""Optional dependencies, imported where they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .exceptions import MissingExtraError

EXTRAS = {
    "dask": "dask",
    "distributed": "dask",
    "espeakng_loader": "synthetic",
    "h5py": "hdf5",
    "kaldi_native_fbank": "audio",
    "PIL": "plot",
    "matplotlib": "plot",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "pyarrow": "parquet",
    "soundfile": "audio",
    "soxr": "audio",
    "tomli_w": "experiment",
    "torch": "torch",
}


def need(module: str) -> Any:
    """Import an optional module, or say which extra brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        extra = EXTRAS[module.partition(".")[0]]
        raise MissingExtraError(
            f"{module} is not installed, which this needs: pip install 'mvplda[{extra}]'", name=module
        ) from error
