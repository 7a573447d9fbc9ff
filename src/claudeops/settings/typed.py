"""Numbers, switches and choices among the variables, read with environs.

Apart from the reader, because environs takes longer to import than a command that looks for the database may take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from environs import Env, EnvValidationError, validate

from claudeops.errors import ConfigurationError
from claudeops.settings.variables import Variable, quoted

_TRUE: Final = frozenset({"true", "on"})  # as the defaults are written


class Typed:
    """Typed access to what the operator set. Every method raises `ConfigurationError` with one sentence."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._env = _MappingEnv(given)

    def number(self, variable: Variable[object]) -> float:
        """Return a finite number within the variable's bounds."""
        try:
            return self._env.float(variable.name, float(variable.default or 0), validate=_range(variable))
        except EnvValidationError:
            raise self._invalid(variable) from None

    def whole(self, variable: Variable[object]) -> int:
        """Return a whole number within the variable's bounds."""
        try:
            return self._env.int(variable.name, int(variable.default or 0), validate=_range(variable))
        except EnvValidationError:
            raise self._invalid(variable) from None

    def switch(self, variable: Variable[object]) -> bool:
        """Return true or false; yes, no, on, off, 1 and 0 are accepted too."""
        try:
            return self._env.bool(variable.name, variable.default in _TRUE)
        except EnvValidationError:
            raise self._invalid(variable) from None

    def choice(self, variable: Variable[object]) -> str:
        """Return one of the variable's choices, in lower case."""
        try:
            return self._env.str(variable.name, variable.choices[0], validate=validate.OneOf(variable.choices))
        except EnvValidationError:
            raise self._invalid(variable) from None

    def _invalid(self, variable: Variable[object]) -> ConfigurationError:
        value = quoted(self._given[variable.name])
        default = f", or unset it for the default {variable.default}" if variable.default is not None else ""
        return ConfigurationError(f"{variable.name} is {value}, but must be {variable.bounds}: set it so{default}.")


class _MappingEnv(Env):
    """environs over a given mapping, so that only the caller reads the environment of the process.

    environs has no parameter for that. It looks values up in exactly one method, which its own ``FileAwareEnv``
    overrides too.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__()
        self._given = given

    def _get_value(self, env_key: str, default: object) -> object:
        return self._given.get(env_key, default)


def _range(variable: Variable[object]) -> validate.Range:
    return validate.Range(min=variable.low, max=variable.high)
