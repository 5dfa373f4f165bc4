"""Errors and warnings of mvplda.

Errors::

    MvpldaError
    ├── DataError (ValueError)          vectors: NaN, wrong width, too few
    │   └── AudioError                  sound: missing, damaged, empty, silent, too short
    ├── LabelError (ValueError)         labels: unknown view, wrong length, one class
    ├── ParameterError (ValueError)     a setting that does not exist or does not fit
    ├── DesignTooLargeError (ValueError)  the exact solution does not fit in memory
    ├── NumericalError (ArithmeticError)  a result that is not finite
    ├── FileFormatError (ValueError)    truncated, foreign or newer files
    ├── FetchError                      weights could not be downloaded, or have an unexpected hash
    └── MissingExtraError (ImportError) an optional dependency is not installed

Warnings::

    MvpldaWarning (UserWarning)
    ├── RankCappedWarning               a rank was larger than the classes allow
    ├── UnidentifiableViewWarning       labels do not separate a view from another, or from the noise
    ├── DisconnectedDesignWarning       parts of the data share no class of a view
    ├── UnlabelledWarning               a list of labels does not name every vector
    ├── UnknownExtractorWarning         vectors of an unknown extractor, which may not match
    ├── FewSpeakersWarning              a calibration rests on few speakers
    ├── ReversedScoresWarning           a calibration reverses the order of the scores
    ├── ConstantLayerWarning            a pre-trained layer hardly changes from frame to frame
    ├── UnknownClassWarning             some claimed classes were not seen in training
    └── MissingPicturesWarning          pictures are left out: matplotlib is not installed

A fit that stops at ``max_iter`` warns with scikit-learn's own ``ConvergenceWarning``.
"""


class MvpldaError(Exception):
    """Base of every error of this package."""


class DataError(MvpldaError, ValueError):
    """The vectors cannot be used as they are."""


class AudioError(DataError):
    """A sound file, or a part of it, cannot be used.

    Attributes
    ----------
    reason : code for programs: "unreadable", "too_long" or "no_speech" (all samples are zero)
    """

    def __init__(self, message: str, reason: str = "unreadable") -> None:
        super().__init__(message)
        self.reason = reason


class LabelError(MvpldaError, ValueError):
    """The labels cannot be used as they are."""


class ParameterError(MvpldaError, ValueError):
    """A setting does not exist or does not fit the data."""


class DesignTooLargeError(MvpldaError, ValueError):
    """The exact posterior of this design does not fit in memory."""


class NumericalError(MvpldaError, ArithmeticError):
    """The result of a computation is not finite."""


class FileFormatError(MvpldaError, ValueError):
    """A file is truncated, of another kind, or of a newer version."""


class FetchError(MvpldaError):
    """Weights could not be downloaded, or have an unexpected hash."""


class MissingExtraError(MvpldaError, ImportError):
    """An optional dependency is not installed."""


class MvpldaWarning(UserWarning):
    """Base of every warning of this package."""


class RankCappedWarning(MvpldaWarning):
    """A rank was lowered to the largest rank that the number of classes or columns allows."""


class UnidentifiableViewWarning(MvpldaWarning):
    """The labels do not separate a view from another view or from the noise."""


class DisconnectedDesignWarning(MvpldaWarning):
    """The vectors form groups that share no class of two views, whose effects are then confounded."""


class UnlabelledWarning(MvpldaWarning):
    """Some vectors have no label; each of them is a class of its own."""


class UnknownExtractorWarning(MvpldaWarning):
    """The extractor of some vectors is unknown, so that they may not match the model or the other vectors."""


class FewSpeakersWarning(MvpldaWarning):
    """A calibration was trained on so few speakers that it may be wrong for others."""


class ReversedScoresWarning(MvpldaWarning):
    """A calibration has a negative slope, which reverses the order of the scores."""


class ConstantLayerWarning(MvpldaWarning):
    """The units of a layer are almost constant over frames, so that the layers above it cannot learn."""


class UnknownClassWarning(MvpldaWarning):
    """Some claimed classes were not seen in training."""


class MissingPicturesWarning(MvpldaWarning):
    """Pictures were left out, because the plotting library is not installed."""
