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
    └── MissingPicturesWarning          plots are left out of a report: matplotlib is missing

A fit that stops at ``max_iter`` warns with scikit-learn's own ``ConvergenceWarning``.
"""


class MvpldaError(Exception):
    """Base class of all errors of this package."""


class DataError(MvpldaError, ValueError):
    """Vectors cannot be used: they contain NaN, have the wrong dimension, or are too few."""


class AudioError(DataError):
    """A sound file, or a segment of it, cannot be used.

    Attributes
    ----------
    reason : code of the reason: "unreadable", "too_long" or "no_speech" (all samples are zero)
    """

    def __init__(self, message: str, reason: str = "unreadable") -> None:
        super().__init__(message)
        self.reason = reason


class LabelError(MvpldaError, ValueError):
    """Labels cannot be used: a view is unknown, or a label is missing, contradictory or of the wrong length."""


class ParameterError(MvpldaError, ValueError):
    """A setting does not exist or does not fit the data."""


class DesignTooLargeError(MvpldaError, ValueError):
    """The exact solution for these labels and ranks does not fit into memory."""


class NumericalError(MvpldaError, ArithmeticError):
    """The result of a computation is NaN or infinite."""


class FileFormatError(MvpldaError, ValueError):
    """A file is damaged, of another format, or of a newer version."""


class FetchError(MvpldaError):
    """The weights of a network could not be downloaded, or have an unexpected hash."""


class MissingExtraError(MvpldaError, ImportError):
    """An optional package, which an extra such as ``mvplda[audio]`` installs, is missing."""


class MvpldaWarning(UserWarning):
    """Base class of all warnings of this package."""


class RankCappedWarning(MvpldaWarning):
    """A rank was lowered to the largest rank that the number of classes or columns allows."""


class UnidentifiableViewWarning(MvpldaWarning):
    """The effect of a view cannot be separated from that of another view, or from the noise, by these labels."""


class DisconnectedDesignWarning(MvpldaWarning):
    """The data fall into parts that share no class of a view, so that the effects of views cannot be separated."""


class UnlabelledWarning(MvpldaWarning):
    """Some vectors have no label; each of these vectors becomes a class of its own."""


class UnknownExtractorWarning(MvpldaWarning):
    """The extractor of some vectors is unknown, so that they may not match the model or the other vectors."""


class FewSpeakersWarning(MvpldaWarning):
    """A calibration was trained on few speakers, so that it may be wrong for other speakers."""


class ReversedScoresWarning(MvpldaWarning):
    """A calibration has a negative slope, which reverses the order of the scores."""


class ConstantLayerWarning(MvpldaWarning):
    """The outputs of a network's layer hardly change from frame to frame, so that later layers cannot learn."""


class UnknownClassWarning(MvpldaWarning):
    """Some claimed classes, such as phrases, were not among the classes of training; these claims are ignored."""


class MissingPicturesWarning(MvpldaWarning):
    """Pictures of a report were left out, because matplotlib is not installed."""
