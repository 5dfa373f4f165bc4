"""Saving and loading of models and other objects, which are instances of subclasses of `Persistent`.

The state of an object is a dict of arrays and a dict of plain values. Every object from a file is checked before it is
returned (`restore`): numbers must be finite, and `check_state` verifies that arrays and values fit each other and give
finite results for ordinary vectors. A failed check raises `FileFormatError`.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from operator import methodcaller
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from ._optional import load_entry_points
from ._typing import Array, Card, Json, PathLike
from .atomic_files import atomic_write
from .exceptions import (
    DataError,
    FileFormatError,
    MvpldaError,
    ParameterError,
    UnknownExtractorWarning,
)
from .tensor_files import State, Tensors, packed_chunks, unpack

FEATURE_NAMES = "feature_names_in_"
"""Attribute of an estimator that was fitted to a table: the names of its columns, as in scikit-learn."""
MAX_WIDTH = 2**20
"""Largest number of columns of vectors that a file may require."""
EXTRACTOR_SUFFIX = ".extractor"
"""Suffix of the note beside a file of vectors that contains the name of their extractor."""
DISPLAY_SETTINGS = ("verbose",)
"""Names of settings that do not influence results and are not stored in files."""
REGISTRY: dict[str, type[Persistent]] = {}
"""Subclasses of `Persistent` by name."""
CLASS_MODULES = (".bundle", ".models.built_in", ".preprocessing")
"""Modules that define the classes of model files; importing them registers these classes in `REGISTRY`."""


class Persistent:
    """Base class of objects that can be saved to a file. Subclasses are registered by their name.

    The state of an estimator consists of its settings (constructor arguments) and its fitted attributes (`FITTED`). A
    class with a different state overrides `get_state` and `from_state`.
    """

    KIND: ClassVar[str] = "object"
    """Kind of object in one word, for messages."""

    FITTED: ClassVar[tuple[str, ...]] = ()
    """Attributes set by fit."""

    STORED_KEYS: ClassVar[dict[str, str]] = {}
    """Name in files of each setting or fitted attribute that is stored under another name."""

    COMPONENTS: ClassVar[tuple[str, ...]] = ()
    """Attributes set by fit that are dicts of `Persistent` objects."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        registered = REGISTRY.setdefault(cls.__name__, cls)
        if registered.__module__ != cls.__module__:
            raise TypeError(
                f"a class with the name {cls.__name__} is already defined in {registered.__module__}: choose another "
                "name"
            )
        REGISTRY[cls.__name__] = cls

    def get_state(self) -> State:
        """Return the arrays and plain values from which `from_state` restores this object."""
        parameters = self.get_params(deep=False)  # type: ignore[attr-defined]
        settings = json_settings(
            {self.STORED_KEYS.get(name, name): value for name, value in parameters.items()}
        )
        arrays: Tensors = {}
        values: Json = {}
        for attribute in self.FITTED:
            if not hasattr(self, attribute):
                raise ParameterError(
                    f"the {type(self).__name__} cannot be saved, because it is not fitted (it has no {attribute}): "
                    "call fit first"
                )
            value = getattr(self, attribute)
            stored = self.STORED_KEYS.get(attribute, attribute)
            entries = value if isinstance(value, dict) else {}
            if isinstance(value, np.ndarray):
                arrays[stored] = np.ascontiguousarray(value)
            elif any(isinstance(entry, np.ndarray) for entry in entries.values()):
                arrays |= {f"{stored}/{key}": entry for key, entry in entries.items()}
            else:
                values[stored] = plain_value(value)
        state: Json = {"settings": settings, "values": values}
        for attribute in self.COMPONENTS:
            components = getattr(self, attribute).items()
            state[attribute] = {
                name: put_component(arrays, f"{attribute}/{i}", component, Persistent)
                for i, (name, component) in enumerate(components)
            }
        return arrays, state

    @classmethod
    def from_state(cls, arrays: Tensors, values: dict[str, Any]) -> Self:
        """Return an object with the state that `get_state` returned."""
        names = {stored: name for name, stored in cls.STORED_KEYS.items()}
        restored = cls(**{names.get(key, key): value for key, value in values["settings"].items()})
        fitted = {**values["values"], **arrays}
        for name, array in arrays.items():
            attribute, slash, key = name.partition("/")
            if slash:
                fitted.setdefault(attribute, {})[key] = array
        for attribute in cls.FITTED:
            stored = cls.STORED_KEYS.get(attribute, attribute)
            if stored not in fitted:
                raise FileFormatError(f"the value {stored!r} of the {cls.__name__} is missing")
            setattr(restored, attribute, fitted[stored])
        for attribute in cls.COMPONENTS:
            components = {
                name: get_component(arrays, f"{attribute}/{i}", about, Persistent)
                for i, (name, about) in enumerate(values[attribute].items())
            }
            setattr(restored, attribute, components)
        return restored

    def check_state(self) -> None:
        """Raise an error if arrays and values do not fit each other, or give results that are not finite."""

    def save(self, path: PathLike) -> None:
        """Write the object to a ``.safetensors`` file, atomically.

        Parameters
        ----------
        path : the file; an earlier file is replaced
        """
        arrays, about = state_of(self, Persistent)
        with atomic_write(path) as (temporary,), temporary.open("wb") as file:
            file.writelines(packed_chunks(arrays, about))

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read an object of this class from a file; `mvplda.load` reads objects of any class.

        Parameters
        ----------
        path : file that `save` wrote
        """
        loaded = load(path)
        if isinstance(loaded, cls):
            return loaded
        name = type(loaded).__name__
        raise FileFormatError(
            f"{path} contains a {name}, not a {cls.__name__}: use mvplda.load or {name}.load"
        )

    def describe(self) -> Json:
        """Return the name of the class and the settings as plain values."""
        return {"class": type(self).__name__, "settings": self.get_params(deep=False)}  # type: ignore[attr-defined]


def load(path: PathLike) -> Any:
    """Read an object from a file: a `Bundle`, a scorer, a calibrator or statistics.

    Parameters
    ----------
    path : ``.safetensors`` file that the method `save` of an object wrote

    Raises
    ------
    FileFormatError
        The file is damaged, of another format or of a newer version, or its contents do not fit each other.
    """
    arrays, about = unpack(path)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # Values that cause warnings are rejected by the checks.
            warnings.simplefilter("ignore")
            return restore(arrays, about, Persistent)
    except MemoryError:
        raise
    except Exception as error:  # values of unknown origin can cause any error
        reason = str(error) or type(error).__name__
        if isinstance(error, KeyError):
            reason = f"the value {reason} is missing"
        raise FileFormatError(
            f"{path} cannot be loaded: {reason}. If another version of mvplda wrote the file, create it again with "
            "this version"
        ) from error


def state_of(component: object, kind: type[object]) -> State:
    """Return the state of an object: its arrays, and its plain values with the name of its class.

    Raise `ParameterError` unless the object is of the class `kind`, and `DataError` if its state
    could not be loaded again.
    """
    if not (isinstance(component, Persistent) and isinstance(component, kind)):
        accepted = sorted(name for name, cls in REGISTRY.items() if issubclass(cls, kind))
        raise ParameterError(
            f"a {type(component).__name__} cannot be saved here; expected an object of one of the classes {accepted}"
        )
    arrays, values = component.get_state()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            _check_component(component, arrays)
    except (MvpldaError, ArithmeticError, np.linalg.LinAlgError) as error:
        raise DataError(
            f"the {type(component).__name__} is not saved, because it could not be loaded again: {error}. Check the "
            "vectors that it was fitted to"
        ) from error
    # With the column names, a table in another order is refused after loading too.
    names = getattr(component, FEATURE_NAMES, None)
    if names is not None:
        values = {**values, FEATURE_NAMES: list(map(str, names))}
    return arrays, {"class": type(component).__name__, **values}


def _check_component(component: Persistent, arrays: Tensors) -> None:
    """Raise an error if an array contains NaN or infinity, or if `check_state` of the object fails.

    arrays : arrays of the object's state
    """
    for key, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FileFormatError(
                f"the array {key} of the {type(component).__name__} contains NaN or infinity: the file is damaged; "
                "save the object again, or restore a copy of the file"
            )
    component.check_state()


def restore(arrays: Tensors, about: dict[str, Any], kind: type[Any]) -> Any:
    """Return the object with a state that `state_of` returned, after checking it.

    arrays : arrays of the state
    about : plain values of the state, with the name of the class
    kind : required base class; `FileFormatError` for an object of another or of an unknown class
    """
    name = about["class"]
    if name not in REGISTRY:
        for module in CLASS_MODULES:
            import_module(module, __package__)
    if name not in REGISTRY:
        load_entry_points("scorers")
        load_entry_points("calibrators")
    cls = REGISTRY.get(name)
    if cls is None:
        raise FileFormatError(
            f"it contains an object of the class {name!r}, which this version of mvplda does not have"
        )
    if not issubclass(cls, kind):
        raise FileFormatError(
            f"it contains an object of the class {name} where a {kind.__name__} is expected"
        )
    component: Persistent = cls.from_state(arrays, about)
    if FEATURE_NAMES in about:
        _restore_feature_names(component, about[FEATURE_NAMES])
    _check_component(component, arrays)
    return component


def _restore_feature_names(component: Any, names: Any) -> None:
    """Set ``feature_names_in_`` to the column names of the training table.

    Raise `FileFormatError` unless `names` is a list with one text per column.
    """
    width = getattr(component, "width_in", None) or getattr(component, "n_features_in_", None)
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or len(names) != width:
        raise FileFormatError(
            f"expected a list of {width} names of columns in feature_names_in_; got {names!r}"
        )
    component.feature_names_in_ = np.array(names, dtype=object)


def check_answers(component: object, answer: Callable[[Array], ArrayLike], width: int) -> None:
    """Raise `FileFormatError` if a method returns NaN or infinity for two test vectors.

    component : the object, for the message
    answer : its method; takes vectors (2, width)
    width : number of columns that it takes; must be from 1 to `MAX_WIDTH`
    """
    check_width(component, width)
    check_finite(component, answer(ordinary_vectors(width)))


def check_width(component: object, width: int) -> None:
    """Raise `FileFormatError` unless the number of columns that an object takes is from 1 to `MAX_WIDTH`."""
    if not 0 < width <= MAX_WIDTH:
        raise FileFormatError(
            f"a {type(component).__name__} must take vectors of 1 to {MAX_WIDTH} columns; this one takes {width}"
        )


def check_finite(component: object, answers: ArrayLike) -> None:
    """Raise `FileFormatError` if `answers` to test vectors contain NaN or infinity."""
    if not np.isfinite(np.asarray(answers)).all():
        raise FileFormatError(
            f"the {type(component).__name__} returns NaN or infinity for typical vectors"
        )


def ordinary_vectors(width: int) -> Array:
    """Return two test vectors (2, width) with different values around 1, as input for checks."""
    return np.linspace(0.31, 1.73, 2 * width).reshape(2, width)


def put_component(arrays: Tensors, prefix: str, component: object, kind: type[object]) -> Json:
    """Add the arrays of a component to those of the object that contains it.

    arrays : arrays of the containing object, changed in place; the new names are ``PREFIX/NAME``
    kind : required base class of the component; `ParameterError` for other objects
    return : plain values of the component
    """
    component_arrays, about = state_of(component, kind)
    arrays.update({f"{prefix}/{name}": array for name, array in component_arrays.items()})
    return about


def get_component(arrays: Tensors, prefix: str, about: dict[str, Any], kind: type[Any]) -> Any:
    """Return the component that `put_component` stored under a prefix, after checking it.

    arrays : arrays of the object that contains the component
    about : plain values of the component, which `put_component` returned
    kind : required base class of the component; `FileFormatError` for other classes
    """
    component_arrays = {
        name[len(prefix) + 1 :]: array
        for name, array in arrays.items()
        if name.startswith(f"{prefix}/")
    }
    return restore(component_arrays, about, kind)


def json_settings(settings: Json) -> Json:
    """Return the settings that a file stores: those that JSON can represent, without `DISPLAY_SETTINGS`.

    Callbacks and random generators, for example, are left out.
    """
    plain = {}
    for name, value in settings.items():
        if name in DISPLAY_SETTINGS:
            continue
        with suppress(TypeError, AttributeError):
            plain[name] = plain_value(value)
    return plain


def plain_value(value: object) -> Any:
    """Return a value as JSON represents it; NumPy arrays and scalars become lists and numbers."""
    return json.loads(json.dumps(value, default=methodcaller("tolist")))


def check_same_extractor(
    name_a: str, extractor_a: str | None, name_b: str, extractor_b: str | None
) -> None:
    """Raise `DataError` if a model and vectors, or two sets of vectors, have different extractors.

    Warns if one of the extractors is unknown.

    Parameters
    ----------
    name_a, name_b : descriptions of the model or of the files of vectors, for messages
    extractor_a, extractor_b : names of their extractors; None if unknown
    """
    if extractor_a == extractor_b:
        return
    if extractor_a and extractor_b:
        raise DataError(
            f"the extractor of {name_b} is {extractor_b!r}, and that of {name_a} is {extractor_a!r}: vectors of "
            "different extractors cannot be compared. Make the vectors of both with the same extractor"
        )
    if extractor_a is None:
        name_a, name_b = name_b, name_a
    warnings.warn(
        f"the extractor of {name_a} is {extractor_a or extractor_b!r}, and that of {name_b} is unknown (there is no "
        f"file with the suffix {EXTRACTOR_SUFFIX} beside it): it cannot be checked whether they fit",
        UnknownExtractorWarning,
        stacklevel=3,
    )


def toml_pairs(values: Card) -> list[str]:
    """Return one line ``key = value`` of TOML per entry."""
    bare = re.compile(r"[A-Za-z0-9_-]+")
    return [
        f"{key if bare.fullmatch(key) else toml_value(key)} = {toml_value(value)}"
        for key, value in values.items()
    ]


def toml_value(value: object) -> str:
    """Return a plain value as TOML; a list of mappings is written with one mapping per line.

    The standard library reads TOML but does not write it.
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(toml_pairs(value)) + " }"
    if isinstance(value, (tuple, list)) and any(isinstance(item, Mapping) for item in value):
        return "[\n    " + ",\n    ".join(map(toml_value, value)) + ",\n]"
    # Text, numbers and lists are written as in JSON, except for the character DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
