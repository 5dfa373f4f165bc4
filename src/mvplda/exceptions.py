"""Everything that mvplda raises or warns about.

Errors::

    MvpldaError
    ├── DataError (ValueError)          vectors: NaN, wrong width, too few
    │   └── AudioError                  sound: missing, damaged, empty, silent, too short
    ├── LabelError (ValueError)         labels: unknown view, wrong length, one class
    ├── ParameterError (ValueError)     a setting that does not exist or does not fit
    ├── DesignTooLargeError (ValueError)  the exact solution does not fit in memory
    ├── NumericalError (ArithmeticError)  a result that is not finite
    ├── FileFormatError (ValueError)    truncated, foreign or newer files
    ├── FetchError                      weights could not be fetched, or are not those that were meant
    └── MissingExtraError (ImportError) an optional dependency is not installed

Warnings::

    MvpldaWarning (UserWarning)
    ├── RankCappedWarning               a rank was more than the classes can hold
    ├── UnidentifiableViewWarning       a view cannot be told from another, or from the noise
    ├── DisconnectedDesignWarning       parts of the data share no class of a view
    ├── UnlabelledWarning               a list of labels does not name every vector
    ├── UnknownExtractorWarning         whether vectors fit a model, or each other, is not known
    ├── FewSpeakersWarning              a calibration rests on few speakers
    ├── ReversedScoresWarning           higher scores came with fewer targets
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
    """A sound file, or a stretch of one, cannot be used."""


class LabelError(MvpldaError, ValueError):
    """The labels cannot be used as they are."""


class ParameterError(MvpldaError, ValueError):
    """A setting does not exist or does not fit the data."""


class DesignTooLargeError(MvpldaError, ValueError):
    """The exact posterior of this design does not fit in memory."""


class NumericalError(MvpldaError, ArithmeticError):
    """A computation gave a result that is not finite."""


class FileFormatError(MvpldaError, ValueError):
    """A file is truncated, of another kind, or of a newer version."""


class FetchError(MvpldaError):
    """Weights could not be fetched, or what came is not what was meant."""


class MissingExtraError(MvpldaError, ImportError):
    """An optional dependency is not installed."""


class MvpldaWarning(UserWarning):
    """Base of every warning of this package."""


class RankCappedWarning(MvpldaWarning):
    """A rank was lowered to what the classes or the dimension can hold."""


class UnidentifiableViewWarning(MvpldaWarning):
    """A view cannot be told from another view or from the noise."""


class DisconnectedDesignWarning(MvpldaWarning):
    """The vectors fall into parts that share no class of a view."""


class UnlabelledWarning(MvpldaWarning):
    """A list of labels does not name every vector: those that it leaves out are classes of their own."""


class UnknownExtractorWarning(MvpldaWarning):
    """Vectors of unknown origin meet a model, or vectors, of a known one: nobody can tell whether they fit."""


class FewSpeakersWarning(MvpldaWarning):
    """A calibration rests on so few speakers that it can be far off for others."""


class ReversedScoresWarning(MvpldaWarning):
    """A calibration turns the order of the scores round."""


class ConstantLayerWarning(MvpldaWarning):
    """A layer's units hardly change from frame to frame: what lies above it learns nothing."""


class UnknownClassWarning(MvpldaWarning):
    """Some claimed classes were not seen in training."""


class MissingPicturesWarning(MvpldaWarning):
    """Pictures were left out, because what draws them is not installed."""
