"""Clear errors for the parameters of the torch modules."""

from collections.abc import Collection


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise a ValueError that names the parameter and its value unless it is a choice."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {sorted(choices)}, got {value!r}")
