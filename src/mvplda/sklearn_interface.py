"""Base class of estimators with the interface of scikit-learn that does not import scikit-learn.

Importing scikit-learn takes longer than a verification. Classes that a verification uses therefore inherit from
`Estimator` instead of scikit-learn's base class; scikit-learn is imported only when one of its functions is needed.
"""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any, Self


class Estimator:
    """Base class of estimators: gets and sets parameters as scikit-learn's `clone`, searches and pipelines require.

    As in scikit-learn, the parameters are the keyword arguments of ``__init__``, which stores them unchanged as
    attributes.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : whether to include the parameters of nested estimators, under names such as ``scorer__noise``
        """
        parameters: dict[str, Any] = {}
        for name in _parameters_of(type(self)):
            value = getattr(self, name)
            parameters[name] = value
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                nested = value.get_params()
                parameters |= {f"{name}__{key}": setting for key, setting in nested.items()}
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name, including those of nested estimators such as ``scorer__noise="full"``."""
        from sklearn.base import BaseEstimator

        BaseEstimator.set_params(self, **parameters)
        return self

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(_parameters_of(cls))

    def __repr__(self) -> str:
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name, parameter in _parameters_of(type(self)).items()
            if getattr(self, name) is not parameter.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _repr_html_(self) -> str:
        from sklearn.utils import estimator_html_repr

        html: str = estimator_html_repr(self)
        return html

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)


def _parameters_of(cls: type[object]) -> dict[str, Parameter]:
    """Return the parameters of a class's ``__init__`` by name, without ``self``."""
    if cls.__init__ is object.__init__:
        return {}
    return dict(list(signature(cls.__init__).parameters.items())[1:])


def check_is_fitted(estimator: object, attribute: str | None = None) -> None:
    """Raise scikit-learn's `NotFittedError` unless an estimator has an attribute that `fit` sets.

    attribute : name of the attribute; None: any attribute whose name ends in an underscore
    """
    if attribute is None or not hasattr(estimator, attribute):
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(estimator, attribute)
